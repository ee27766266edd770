#include "flags.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <type_traits>

#include "feedrate/error.hpp"
#include "feedrate/profile.hpp"
#include "feedrate/report.hpp"
#include "text.hpp"

namespace feedrate {
namespace {

struct NamedHelp {
  std::string_view name;
  std::string_view help;
};

using Take = std::function<void(Options&, const std::string& given)>;

struct Flag {
  std::string name;   // without the dashes
  std::string value;  // what --help calls it; empty: a toggle, on when it stands alone
  std::string help;
  std::vector<NamedHelp> choices;
  Take take;
};

UsageError bad_value(const std::string& flag, const std::string& text, const std::string& right) {
  return UsageError("--" + flag + "=" + text + ": must be " + right);
}

int number(const std::string& flag, const std::string& text, const Range& range) {
  if (!range.zero.empty() && text == range.zero) {
    return 0;
  }
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < range.least || value > range.most ||
      value % range.multiple_of != 0) {
    throw bad_value(flag, text, describe(range));
  }
  return value;
}

bool on_or_off(const std::string& flag, const std::string& text) {
  if (text == "on" || text == "true" || text == "yes" || text == "1") {
    return true;
  }
  if (text == "off" || text == "false" || text == "no" || text == "0") {
    return false;
  }
  throw bad_value(flag, text, "on or off");
}

std::string one_of(const std::string& flag, const std::string& text,
                   const std::vector<std::string_view>& names) {
  if (std::find(names.begin(), names.end(), text) == names.end()) {
    throw bad_value(flag, text, either(names));
  }
  return text;
}

// --- One flag for each member of Spec ------------------------------------------------------------

Flag flag_for(std::string_view name, int Spec::*member, std::string_view help, Range range) {
  const std::string flag(name);
  return {flag,
          "N",
          std::string(help) + " (" + describe(range) + ")",
          {},
          [=](Options& options, const std::string& given) {
            const int value = number(flag, given, range);
            options.overrides.push_back({name, [=](Spec& spec) { spec.*member = value; }});
          }};
}

Flag flag_for(std::string_view name, bool Spec::*member, std::string_view help) {
  const std::string flag(name);
  return {flag, "", std::string(help), {}, [=](Options& options, const std::string& given) {
            const bool value = on_or_off(flag, given);
            options.overrides.push_back({name, [=](Spec& spec) { spec.*member = value; }});
          }};
}

template <typename Enum>
requires std::is_enum_v<Enum> Flag flag_for(std::string_view name, Enum Spec::*member,
                                            std::string_view help) {
  const std::string flag(name);
  std::vector<NamedHelp> named;
  std::vector<std::string_view> names;
  for (const auto& choice : choices<Enum>()) {
    named.push_back({choice.name, choice.help});
    names.push_back(choice.name);
  }
  return {flag, "NAME", std::string(help), named, [=](Options& options, const std::string& given) {
            const Enum value = *choice_named<Enum>(one_of(flag, given, names));
            options.overrides.push_back({name, [=](Spec& spec) { spec.*member = value; }});
          }};
}

std::vector<Flag> spec_flags() {
  std::vector<Flag> flags;
  for_each_member([&](std::string_view name, auto member, std::string_view help, auto... range) {
    flags.push_back(flag_for(name, member, help, range...));
  });
  return flags;
}

// --- The other kinds of flags --------------------------------------------------------------------

template <typename Text>
Flag text(const std::string& name, const std::string& value, const std::string& help,
          Text Options::*member) {
  return {name, value, help, {}, [=](Options& options, const std::string& given) {
            options.*member = given;
          }};
}

Flag toggle(const std::string& name, const std::string& help, bool Options::*member = nullptr) {
  return {name, "", help, {}, [=](Options& options, const std::string& given) {
            const bool on = on_or_off(name, given);
            if (member != nullptr) {
              options.*member = on;
            }
          }};
}

Flag count(const std::string& name, const Range& range, const std::string& help,
           int Options::*member = nullptr) {
  return {name, "N", help, {}, [=](Options& options, const std::string& given) {
            const int value = number(name, given, range);
            if (member != nullptr) {
              options.*member = value;
            }
          }};
}

Flag choice(const std::string& name, const std::vector<std::string_view>& names,
            const std::string& help, const Take& take = {}) {
  std::string value;
  for (const auto& each : names) {
    value += (value.empty() ? "" : "|") + std::string(each);
  }
  return {name, value, help, {}, [=](Options& options, const std::string& given) {
            one_of(name, given, names);
            if (take) {
              take(options, given);
            }
          }};
}

// For Google Benchmark to act on, once it has been found to be good.
Flag passed_on(Flag flag) {
  flag.take = [name = flag.name, take = flag.take](Options& options, const std::string& given) {
    take(options, given);
    options.passed_on.push_back("--" + name + "=" + given);
  };
  return flag;
}

// "1:32": both bounds of an axis of the member.
Flag bounds(const std::string& name, const Range& range, const std::string& help,
            Bounds Options::*member) {
  return {name, "LEAST:MOST", help, {}, [=](Options& options, const std::string& given) {
            const std::size_t colon = given.find(':');
            Bounds read;
            try {
              read = {
                  number(name, given.substr(0, colon), range),
                  number(name, colon == std::string::npos ? "" : given.substr(colon + 1), range)};
            } catch (const UsageError&) {  // of the part that is wrong
              throw bad_value(name, given,
                              "LEAST:MOST, such as " + std::to_string(2 * range.least) + ":" +
                                  std::to_string(4 * range.least) + "; each is " + describe(range));
            }
            if (read.least > read.most) {
              throw bad_value(name, given, "LEAST:MOST with LEAST no more than MOST");
            }
            options.*member = read;
          }};
}

Flag without_effect(const std::string& name, const std::string& value, const std::string& why) {
  return {name, value, "no effect: " + why, {}, [=](Options& options, const std::string&) {
            options.notes.push_back("--" + name + " has no effect: " + why);
          }};
}

void take_trace(Options& options, const std::string& given) {
  options.trace = given == "auto" ? std::nullopt : std::optional(given == "on");
}

void take_context(Options& options, const std::string& given) {
  for (std::size_t begin = 0; begin <= given.size();) {
    const std::size_t end = std::min(given.find(',', begin), given.size());
    const std::string pair = given.substr(begin, end - begin);
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || pair.starts_with("feedrate.")) {
      throw bad_value("benchmark_context", given,
                      "KEY=VALUE,… with keys that do not begin with feedrate.");
    }
    options.context.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    begin = end + 1;
  }
}

// --- The tables ----------------------------------------------------------------------------------

std::vector<Flag> own_flags() {
  return {
      text("device", "NAME", "where to run; auto if not given", &Options::device),
      choice("trace", {"auto", "on", "off"},
             "ranges for a profiler; auto: with --capture and when one has started us", take_trace),
      toggle("capture", "brackets the measured steps: nsys profile --capture-range=cudaProfilerApi",
             &Options::capture),
      text("timeline", "FILE", "writes each step of the rows that ran as a trace for Perfetto",
           &Options::timeline),
      text("torch_profile", "FILE.json",
           "writes LibTorch's (Kineto) trace of the measured steps of the one row chosen",
           &Options::torch_profile),
      bounds("sweep_workers", {1, 4096},
             "workers of the Workers and Loader rows: both bounds, powers of two between",
             &Options::sweep_workers),
      bounds("sweep_batch", {1, 65536},
             "batches of the BatchSize rows: both bounds, powers of two between",
             &Options::sweep_batch),
      bounds("sweep_image", {32, 8192, 4},
             "images of the ImageSize rows: both bounds, powers of two between",
             &Options::sweep_image),
      toggle("help", "prints this", &Options::help),
      toggle("version", "prints the version", &Options::version),
  };
}

std::vector<Flag> google_flags() {
  const std::string steps_decide = "a row runs a fixed number of steps (--steps, --warmup)";
  return {
      text("benchmark_filter", "REGEX",
           "runs the rows whose name matches; -REGEX: those that do not", &Options::filter),
      toggle("benchmark_list_tests", "prints the rows' names and runs nothing", &Options::list),
      text("benchmark_out", "FILE", "writes the result file, whole or not at all", &Options::out),
      choice("benchmark_out_format", {"json"}, "the result file's format"),
      choice("benchmark_format", {"console", "json"},
             "what stdout gets: a table, or the result file",
             [](Options& options, const std::string& given) { options.json = given == "json"; }),
      passed_on(count("benchmark_repetitions", {1, 100'000},
                      "runs each row that often, with aggregates", &Options::repetitions)),
      passed_on(toggle("benchmark_enable_random_interleaving",
                       "runs the repetitions of all rows in a random order")),
      toggle("benchmark_report_aggregates_only", "leaves single repetitions out",
             &Options::report_aggregates_only),
      toggle("benchmark_display_aggregates_only", "leaves them out of the table",
             &Options::display_aggregates_only),
      {"benchmark_context", "KEY=VALUE,…", "further context for the result file", {}, take_context},
      passed_on(choice("benchmark_time_unit", {"ns", "us", "ms", "s"},
                       "of real_time and cpu_time; ms if not given")),
      passed_on(text("benchmark_perf_counters", "NAME,…",
                     "hardware counters of the training loop's thread", &Options::perf_counters)),
      without_effect("benchmark_min_time", "S", steps_decide),
      without_effect("benchmark_min_warmup_time", "S", steps_decide),
      without_effect("benchmark_color", "WHEN", "the table has no colours"),
      without_effect("benchmark_counters_tabular", "", "the table is one already"),
      passed_on(count("v", {0, 9}, "Google Benchmark's own log")),
  };
}

struct Section {
  std::string title;
  std::vector<Flag> flags;
};

std::vector<Section> sections() {
  return {{"Where to run, and what a profiler sees", own_flags()},
          {"What a row is, in the order of the flow: each flag sets one member of the rows "
           "that do not\nfix it by their name",
           spec_flags()},
          {"Google Benchmark's", google_flags()}};
}

// --- Parsing -------------------------------------------------------------------------------------

// "--queue-batches=" is "--queue_batches" and an empty value: CLI11 would take the next argument
// for the value.
std::vector<std::string> normalised(int argc, const char* const* argv) {
  std::vector<std::string> args;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    if (arg == "-h") {
      arg = "--help";
    }
    if (arg.starts_with("--")) {
      const auto name_end =
          arg.begin() + static_cast<std::ptrdiff_t>(std::min(arg.find('='), arg.size()));
      std::replace(arg.begin() + 2, name_end, '-', '_');
    }
    const bool empty_value =
        arg.starts_with("--") && arg.ends_with('=') && arg.find('=') == arg.size() - 1;
    if (empty_value) {
      arg.pop_back();
    }
    args.push_back(std::move(arg));
    if (empty_value) {
      args.emplace_back();
    }
  }
  return args;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

void refuse_unknown(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    return;
  }
  const std::string& argument = arguments.front();
  if (argument.starts_with("-")) {
    throw UsageError("unknown flag " + argument.substr(0, argument.find('=')) +
                     ": --help lists them");
  }
  throw UsageError("unexpected argument '" + argument + "': flags begin with --");
}

}  // namespace

bool Options::overrides_member(std::string_view member) const {
  return std::any_of(overrides.begin(), overrides.end(),
                     [&](const Override& override) { return override.member == member; });
}

Options parse_flags(int argc, const char* const* argv) {
  Options options;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  for (const auto& section : sections()) {
    for (const auto& flag : section.flags) {
      auto* option = app.add_option_function<std::string>(
          "--" + flag.name,
          [&options, take = flag.take](const std::string& text) { take(options, text); });
      option->take_last()->type_name("value");
      if (flag.value.empty()) {
        option->expected(0, 1)->default_str("on");
      }
      if (flag.name.starts_with("benchmark_")) {
        option->envname(upper(flag.name));
      }
    }
  }
  auto args = normalised(argc, argv);
  std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
  try {
    app.parse(std::move(args));
  } catch (const CLI::ArgumentMismatch& error) {
    throw UsageError(std::string(error.what()) + "; --help says what it takes");
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  refuse_unknown(app.remaining());
  return options;
}

std::string help_text(const DeviceTable& devices) {
  constexpr std::size_t kWidth = 26;
  constexpr std::size_t kNameWidth = 18;
  std::string text =
      "usage: bench [flags]\n\n"
      "Measures how fast training data reaches the GPU, and which stage holds it back.\n"
      "Exit status: 0 all rows ran, 1 a row failed or trained on bad batches, or the result could\n"
      "not be written, 2 wrong usage, 130 interrupted (finished rows are written).\n";
  const auto choice_line = [&](std::string_view name, std::string_view help) {
    text += "      " + padded(std::string(name), kNameWidth) + "  " + std::string(help) + "\n";
  };
  for (const auto& section : sections()) {
    text += "\n" + section.title + ":\n";
    for (const auto& flag : section.flags) {
      const std::string left = "  --" + flag.name + (flag.value.empty() ? "" : "=" + flag.value);
      text += left.size() <= kWidth ? padded(left, kWidth) : left + "\n" + padded("", kWidth);
      text += "  " + flag.help + "\n";
      for (const auto& choice : flag.choices) {
        choice_line(choice.name, choice.help);
      }
      if (flag.name == "device") {
        for (const auto& device : devices) {
          choice_line(device.name, device.help);
        }
      }
    }
  }
  text += "\nFamilies of rows, to be chosen by --benchmark_filter=^NAME/:\n";
  for (const auto& family : families()) {
    choice_line(family.name, family.help);
  }
  text += "\nCounters of a training loop (README.md has those of the other rows):\n";
  for (const auto& counter : counter_infos()) {
    choice_line(counter.name, counter.help);
  }
  return text;
}

}  // namespace feedrate
