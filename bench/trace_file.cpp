#include "trace_file.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace feedrate {
namespace {

using Json = nlohmann::ordered_json;

// chrome://tracing knows colours by these names only.
constexpr std::string_view kBlue = "rail_response";
constexpr std::string_view kRed = "terrible";
constexpr std::string_view kYellow = "yellow";
constexpr std::string_view kGreen = "good";
constexpr std::string_view kOlive = "olive";
constexpr std::string_view kGrey = "grey";

// Tracks of a row, in the order in which a viewer shows them.
constexpr int kWindow = 1;
constexpr int kHost = 2;
constexpr int kPin = 3;
constexpr int kCopy = 4;
constexpr int kCompute = 5;
constexpr int kFirstWorker = 10;

// What a record's intervals are called and where they stand. The intervals of one track are either
// apart or nested, as the format wants it.
struct Lane {
  int track;
  std::string_view name;
  std::string_view colour;
  Interval StepRecord::*interval;
};
constexpr std::array kLanes{
    Lane{kPin, "pin", kGrey, &StepRecord::pinned},
    Lane{kHost, "batch", kBlue, &StepRecord::turn},
    Lane{kHost, "get batch", kRed, &StepRecord::fetch},
    Lane{kHost, "wait for slot", kGrey, &StepRecord::wait},
    Lane{kHost, "copy batch", kYellow, &StepRecord::submit},
    Lane{kHost, "release batch", kGrey, &StepRecord::release},
    Lane{kHost, "launch", kGreen, &StepRecord::launch},
    Lane{kHost, "synchronize", kGrey, &StepRecord::sync},
    Lane{kCopy, "copy batch", kYellow, &StepRecord::copy},
    Lane{kCompute, "compute", kGreen, &StepRecord::compute},
};

TimeNs begin_of(const Timeline& timeline) {
  TimeNs begin = timeline.window.begin;
  const auto see = [&](const Interval& interval) {
    begin = interval.length() > 0 ? std::min(begin, interval.begin) : begin;
  };
  for (const auto& step : timeline.steps) {
    see(step.made);
    for (const auto& lane : kLanes) {
      see(step.*lane.interval);
    }
  }
  return begin;
}

// The events of one row: its tracks' names, then what happened, in the order of time.
class Writer {
 public:
  Writer(int row, TimeNs begin) : row_(row), begin_(begin) {}

  void name(const char* what, int track, const std::string& text) {
    Json event = header("M", what, track);
    event["args"]["name"] = text;
    names_.push_back(std::move(event));
  }
  void track(int number, const std::string& text) {
    name("thread_name", number, text);
    Json event = header("M", "thread_sort_index", number);
    event["args"]["sort_index"] = number;
    names_.push_back(std::move(event));
  }
  void interval(int track, std::string_view what, std::string_view colour, Interval during,
                const Json& args) {
    if (during.length() == 0) {
      return;
    }
    Json event = header("X", what, track);
    event["cat"] = "feedrate";
    event["ts"] = to_us(during.begin - begin_);
    event["dur"] = to_us(during.length());
    event["cname"] = colour;
    event["args"] = args;
    events_.push_back({during.begin, during.length(), std::move(event)});
  }
  // One station of a batch on its way: phase s begins it, t is on it, f ends it.
  void station(const char* phase, int track, TimeNs time, std::int64_t batch) {
    Json event = header(phase, "batch", track);
    event["cat"] = "batch";
    event["id"] = std::to_string(row_) + "." + std::to_string(batch);
    event["ts"] = to_us(time - begin_);
    if (*phase == 'f') {
      event["bp"] = "e";  // ends in the interval around it, not in the next one
    }
    events_.push_back({time, -1, std::move(event)});
  }

  std::string text() {
    std::stable_sort(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
      return std::tuple(a.time, -a.length) < std::tuple(b.time, -b.length);
    });
    std::string text;
    const auto put = [&](const Json& event) {
      text +=
          (text.empty() ? "" : ",\n") + event.dump(-1, ' ', false, Json::error_handler_t::replace);
    };
    for (const auto& event : names_) {
      put(event);
    }
    for (const auto& event : events_) {
      put(event.json);
    }
    return text;
  }

 private:
  struct Event {
    TimeNs time;
    TimeNs length;  // -1: a station, which stands behind the interval that begins with it
    Json json;
  };

  static double to_us(TimeNs time) { return static_cast<double>(time) * 1e-3; }
  Json header(std::string_view phase, std::string_view what, int track) const {
    return {{"ph", phase}, {"name", what}, {"pid", row_}, {"tid", track}};
  }

  int row_;
  TimeNs begin_;
  std::vector<Json> names_;
  std::vector<Event> events_;
};

void write_step(Writer& writer, const StepRecord& step, bool measured) {
  const Json args{{"step", step.index}, {"measured", measured}};
  for (const auto& lane : kLanes) {
    writer.interval(lane.track, lane.name, lane.colour, step.*lane.interval, args);
  }
  // Parts of compute.
  if (step.normalized > 0) {
    writer.interval(kCompute, "normalize", kGrey, {step.compute.begin, step.normalized}, args);
  }
  writer.interval(kCompute, "check", kGrey, {step.step_end, step.compute.end}, args);
  // An inline loader makes the batch inside the loop's fetch: nested there.
  const int maker = step.worker < 0 ? kHost : kFirstWorker + step.worker;
  writer.interval(maker, "make batch", kOlive, step.made, args);

  // Begins follow one another; ends need not, since a copy may end before its submission does.
  struct Station {
    int track;
    Interval during;
  };
  std::vector<Station> stations{{maker, step.made},
                                {kPin, step.pinned},
                                {kHost, step.submit},
                                {kCopy, step.copy},
                                {kCompute, step.compute}};
  std::erase_if(stations, [](const Station& station) { return station.during.length() == 0; });
  TimeNs reached = std::numeric_limits<TimeNs>::min();
  for (std::size_t at = 0; at < stations.size() && stations.size() > 1; ++at) {
    const char* const phase = at == 0 ? "s" : at + 1 == stations.size() ? "f" : "t";
    reached = std::max(reached, stations[at].during.begin);  // a device's clock is only mapped
    writer.station(phase, stations[at].track, reached, step.index);
  }
}

}  // namespace

TraceFile::TraceFile(const std::string& flag, const std::string& path) : file_(path, flag) {}

void TraceFile::add(const std::string& title, const Spec& spec, const Timeline& timeline) {
  if (timeline.steps.empty()) {
    return;
  }
  Writer writer(rows_ + 1, begin_of(timeline));
  writer.name("process_name", 0, title);
  int workers = 0;
  bool pins = false;
  bool copies = false;
  for (const auto& step : timeline.steps) {
    workers = std::max(workers, step.worker + 1);
    pins = pins || step.pinned.length() > 0;
    copies = copies || step.copy.length() > 0;
  }
  writer.track(kWindow, "measured window");
  writer.track(kHost, "host: training loop");
  if (pins) {
    writer.track(kPin, "pin thread");
  }
  if (copies) {
    const bool own_stream = spec.schedule != ScheduleKind::kSerial;
    writer.track(kCopy, own_stream ? "device: copy stream" : "device: copies on the one stream");
  }
  writer.track(kCompute, "device: compute stream");
  for (int worker = 0; worker < workers; ++worker) {
    writer.track(kFirstWorker + worker, "worker " + std::to_string(worker));
  }
  writer.interval(kWindow, "measured window", kGrey, timeline.window, {{"steps", timeline.count}});
  const std::int64_t first = timeline.first;
  for (const auto& step : timeline.steps) {
    const bool measured = step.index >= first && step.index < first + timeline.count;
    write_step(writer, step, measured);
  }
  const std::string text = writer.text();
  const std::lock_guard lock(mutex_);
  events_ += (events_.empty() ? "" : ",\n") + text;
  ++rows_;
}

bool TraceFile::empty() const {
  const std::lock_guard lock(mutex_);
  return rows_ == 0;
}

void TraceFile::write() const {
  const std::lock_guard lock(mutex_);
  file_.write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + events_ + "\n]}\n");
}

}  // namespace feedrate
