#include "trace_file.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

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
constexpr int kHost = 1;
constexpr int kPin = 2;
constexpr int kCopy = 3;
constexpr int kCompute = 4;
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
  TimeNs begin = std::numeric_limits<TimeNs>::max();
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

double to_us(TimeNs time) { return static_cast<double>(time) * 1e-3; }

// The events of one row, as text.
class Writer {
 public:
  Writer(int row, TimeNs begin) : row_(row), begin_(begin) {}

  void name(const char* what, int track, const std::string& text) {
    Json event = header("M", what, track);
    event["args"]["name"] = text;
    put(event);
  }
  void sort(int track) {
    Json event = header("M", "thread_sort_index", track);
    event["args"]["sort_index"] = track;
    put(event);
  }
  void interval(int track, std::string_view what, std::string_view colour, Interval during,
                const StepRecord& step, bool measured) {
    Json event = header("X", what, track);
    event["cat"] = "feedrate";
    event["ts"] = to_us(during.begin - begin_);
    event["dur"] = to_us(during.length());
    event["cname"] = colour;
    event["args"] = {{"step", step.index}, {"measured", measured}};
    put(event);
  }
  // One station of a batch on its way: phase s begins it, t is on it, f ends it.
  void station(const char* phase, int track, Interval during, const StepRecord& step) {
    Json event = header(phase, "batch", track);
    event["cat"] = "batch";
    event["id"] = std::to_string(row_) + "." + std::to_string(step.index);
    event["ts"] = to_us(during.begin + during.length() / 2 - begin_);
    if (*phase == 'f') {
      event["bp"] = "e";  // ends in the interval around it, not in the next one
    }
    put(event);
  }

  std::string text;

 private:
  Json header(std::string_view phase, std::string_view what, int track) const {
    return {{"ph", phase}, {"name", what}, {"pid", row_}, {"tid", track}};
  }
  void put(const Json& event) {
    text +=
        (text.empty() ? "" : ",\n") + event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  int row_;
  TimeNs begin_;
};

void write_step(Writer& writer, const StepRecord& step, bool measured) {
  const int maker = step.worker < 0 ? kHost : kFirstWorker + step.worker;
  struct Station {
    int track;
    Interval during;
  };
  std::vector<Station> stations;
  const auto pass = [&](int track, Interval during) {
    if (during.length() > 0) {
      stations.push_back({track, during});
    }
  };
  // An inline loader makes the batch inside the loop's fetch: nested there.
  if (step.made.length() > 0) {
    writer.interval(maker, "make batch", kOlive, step.made, step, measured);
  }
  for (const auto& lane : kLanes) {
    if ((step.*lane.interval).length() > 0) {
      writer.interval(lane.track, lane.name, lane.colour, step.*lane.interval, step, measured);
    }
  }
  pass(maker, step.made);
  pass(kPin, step.pinned);
  pass(kHost, step.submit);
  pass(kCopy, step.copy);
  pass(kCompute, step.compute);
  for (std::size_t at = 0; at < stations.size() && stations.size() > 1; ++at) {
    const char* const phase = at == 0 ? "s" : at + 1 == stations.size() ? "f" : "t";
    writer.station(phase, stations[at].track, stations[at].during, step);
  }
}

}  // namespace

TraceFile::TraceFile(const std::string& flag, const std::string& path) : file_(path, flag) {}

void TraceFile::add(const std::string& title, const Timeline& timeline) {
  if (timeline.steps.empty()) {
    return;
  }
  Writer writer(++rows_, begin_of(timeline));
  writer.name("process_name", 0, title);
  int workers = 0;
  bool pins = false;
  for (const auto& step : timeline.steps) {
    workers = std::max(workers, step.worker + 1);
    pins = pins || step.pinned.length() > 0;
  }
  const auto track = [&](int number, const std::string& name) {
    writer.name("thread_name", number, name);
    writer.sort(number);
  };
  track(kHost, "host: training loop");
  if (pins) {
    track(kPin, "pin thread");
  }
  track(kCopy, "device: copy stream");
  track(kCompute, "device: compute stream");
  for (int worker = 0; worker < workers; ++worker) {
    track(kFirstWorker + worker, "worker " + std::to_string(worker));
  }
  const std::int64_t first = timeline.first;
  for (const auto& step : timeline.steps) {
    const bool measured = step.index >= first && step.index < first + timeline.count;
    write_step(writer, step, measured);
  }
  events_ += (events_.empty() ? "" : ",\n") + writer.text;
}

void TraceFile::write() const {
  file_.write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + events_ + "\n]}\n");
}

}  // namespace feedrate
