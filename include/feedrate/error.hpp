// What can go wrong, by who has to act on it.
//
// UsageError ends the program with status 2. The others end one row: Unsupported makes it a skipped
// row with a reason, everything else an error row; the suite goes on. Messages are one line, say
// what was wrong and, where it helps, what would be right.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace feedrate {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The user asked for something that does not exist or makes no sense.
struct UsageError : Error {
  using Error::Error;
};

// This device cannot honour that choice.
struct Unsupported : Error {
  using Error::Error;
};

// Memory was refused; the message names the kind and the bytes asked for.
struct OutOfMemory : Error {
  OutOfMemory(const std::string& kind, std::size_t bytes);
  // Refused by a library, in whose words.
  explicit OutOfMemory(const std::string& message) : Error(message) {}
};

// A worker failed or died; the message names it and gives its error or exit status.
struct LoaderError : Error {
  using Error::Error;
};

// The device or its library reported an error.
struct DeviceError : Error {
  using Error::Error;
};

// Ctrl-C: the run was stopped from outside.
struct Interrupted : Error {
  Interrupted() : Error("interrupted") {}
};

// What the kernel says with that errno, and what would help.
std::string refusal(int error);

}  // namespace feedrate
