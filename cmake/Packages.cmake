# The libraries that feedrate takes from the system: what CMake calls each one, the oldest version
# that will do, the Debian package that brings it, and what to fetch where it is not installed.
# cmake/Dependencies.cmake finds or fetches them; cmake/probe says which are missing.

set(feedrate_packages benchmark GTest nlohmann_json CLI11)

set(benchmark_oldest 1.7.1)
set(benchmark_debian libbenchmark-dev)
set(benchmark_git https://github.com/google/benchmark.git v1.8.3)

set(GTest_oldest 1.12)
set(GTest_debian libgtest-dev libgmock-dev)
set(GTest_git https://github.com/google/googletest.git v1.14.0)

set(nlohmann_json_oldest 3.11)
set(nlohmann_json_debian nlohmann-json3-dev)
set(nlohmann_json_git https://github.com/nlohmann/json.git v3.11.3)

set(CLI11_oldest 2.1)
set(CLI11_debian libcli11-dev)
set(CLI11_git https://github.com/CLIUtils/CLI11.git v2.4.2)
