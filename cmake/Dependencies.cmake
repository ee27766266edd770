# What feedrate builds on, as targets:
#   benchmark::benchmark  GTest::gtest_main  GTest::gmock
#   nlohmann_json::nlohmann_json  CLI11::CLI11
#   feedrate_warnings     our own warnings, errors with FEEDRATE_WERROR; for our targets only
#   feedrate_libtorch     LibTorch, all of it                                (FEEDRATE_TORCH)
#   feedrate_torch_cpu    the same headers, but only the libraries that need no GPU: loads sooner
#   CUDA::cudart  CUDA::nvtx3                                                (FEEDRATE_CUDA)
# The installed copy comes first, a pinned one from its repository second. FEEDRATE_CUDA says
# whether the Torch that was found is a CUDA build; without Torch it is OFF.

include(FetchContent)
include(${CMAKE_CURRENT_LIST_DIR}/Packages.cmake)

# --- Google Benchmark, GoogleTest, nlohmann-json, CLI11 -------------------------------------------

find_package(Threads REQUIRED)
# For the fetched copies: the libraries only.
foreach(extra BENCHMARK_ENABLE_TESTING BENCHMARK_ENABLE_INSTALL BENCHMARK_ENABLE_WERROR
              INSTALL_GTEST JSON_Install CLI11_INSTALL)
  set(${extra} OFF CACHE INTERNAL "")
endforeach()

foreach(package IN LISTS feedrate_packages)
  find_package(${package} ${${package}_oldest} CONFIG QUIET)
  if(${package}_FOUND)
    message(STATUS "${package} ${${package}_VERSION}: installed")
  else()
    list(GET ${package}_git 0 repository)
    list(GET ${package}_git 1 tag)
    message(STATUS "${package}: not installed, fetching ${tag} of ${repository}")
    FetchContent_Declare(${package} GIT_REPOSITORY ${repository} GIT_TAG ${tag} GIT_SHALLOW ON
                         SYSTEM)
    FetchContent_MakeAvailable(${package})
  endif()
endforeach()

# --- Torch, and the CUDA toolkit that it was built with -------------------------------------------

set(FEEDRATE_CUDA OFF)
if(FEEDRATE_TORCH)
  if(NOT Torch_DIR)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    execute_process(
      COMMAND ${Python3_EXECUTABLE} -c "import torch; print(torch.utils.cmake_prefix_path)"
      OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  # Torch asks for machine code of every GPU it finds and warns where there is none. We have no
  # kernel of our own, so one architecture, any, keeps it quiet.
  if(NOT TORCH_CUDA_ARCH_LIST)
    set(TORCH_CUDA_ARCH_LIST 8.0)
  endif()
  # Its other warnings are harmless (kineto "not found": it is inside libtorch_cpu).
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  find_package(Torch QUIET HINTS ${torch_prefix})
  unset(CMAKE_MESSAGE_LOG_LEVEL)
  if(NOT Torch_FOUND)
    message(FATAL_ERROR "Torch was not found. scripts/run.sh installs it; by hand: "
                        "python3 -m pip install torch==2.11.0 and -DPython3_EXECUTABLE=…, "
                        "or -DTorch_DIR=…/torch/share/cmake/Torch. Without: -DFEEDRATE_TORCH=OFF.")
  endif()

  # Imported targets, so Torch's headers are system headers; `torch` carries its own flags.
  add_library(feedrate_libtorch INTERFACE)
  target_link_libraries(feedrate_libtorch INTERFACE ${TORCH_LIBRARIES})
  add_library(feedrate_torch_cpu INTERFACE)
  target_link_libraries(feedrate_torch_cpu INTERFACE torch_cpu c10)
  target_include_directories(feedrate_torch_cpu SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_compile_options(feedrate_torch_cpu INTERFACE ${TORCH_CXX_FLAGS})

  if(TARGET torch::cudart)
    set(FEEDRATE_CUDA ON)
    block()
      # CMake 3.25.1 (Debian 12) trips over CUDA 13, which has no nvToolsExt, unless the project is
      # older than the advice that it wants to give.
      set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
      find_package(CUDAToolkit REQUIRED)
    endblock()
  endif()
  message(STATUS "Torch ${Torch_VERSION}: ${TORCH_INSTALL_PREFIX}, CUDA ${FEEDRATE_CUDA}")
endif()

# --- Our own warnings -----------------------------------------------------------------------------

# -Wrestrict of g++ 12 warns of its own std::string operator+ (GCC bug 105651).
add_library(feedrate_warnings INTERFACE)
target_compile_options(
  feedrate_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                              -Wno-missing-field-initializers
                              $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                              $<$<BOOL:${FEEDRATE_WERROR}>:-Werror>)
