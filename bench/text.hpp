// Text: numbers and lists as people read them, whatever the locale; what the kernel says in a line.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "feedrate/error.hpp"

namespace feedrate {

// "6.44": that many digits behind the point. What rounds to nothing has no sign.
inline std::string fixed(double value, int digits) {
  std::array<char, 400> room;
  const auto end = std::to_chars(room.data(), room.data() + room.size(), value,
                                 std::chars_format::fixed, digits);
  const std::string_view text(room.data(), end.ptr);
  const bool nothing = text.find_first_not_of("-0.") == std::string_view::npos;
  return std::string(nothing && text.starts_with('-') ? text.substr(1) : text);
}

// The first line of a file; empty if it cannot be read.
inline std::string first_line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// What an exception says in a line: libraries put a trace of calls behind their message, and the
// standard's does not say what could not be had.
inline std::string words_of(const std::exception& error) {
  const auto* const refused = dynamic_cast<const std::system_error*>(&error);
  if (refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again) {
    return "no thread could be started: " + refusal(refused->code().value());
  }
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// "inline, threads or processes".
inline std::string either(const std::vector<std::string_view>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

inline std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// In a column: what is as wide as that, or wider, still stands apart from what is before it.
inline std::string right(const std::string& text, std::size_t width) {
  return (text.size() < width ? std::string(width - text.size(), ' ') : " ") + text;
}

}  // namespace feedrate
