# Tests have the names of what they test. Core tests also run under the sanitizers.
include(GoogleTest)

add_executable(test_worker tests/worker_main.cpp)
target_link_libraries(test_worker PRIVATE feedrate_core feedrate_warnings)

set(core_tests
  tests/spec_test.cpp
  tests/dataset_test.cpp
  tests/loader_test.cpp
  tests/worker_pool_test.cpp
  tests/staging_test.cpp
  tests/device_test.cpp
  tests/device_sim_test.cpp
  tests/profile_test.cpp
  tests/caching_memory_test.cpp
  tests/transfer_test.cpp
  tests/overlap_test.cpp
  tests/schedule_test.cpp
  tests/guard_test.cpp
  tests/report_test.cpp
  tests/samples_test.cpp
  tests/ladder_test.cpp
  tests/trace_test.cpp
)
add_executable(core_tests ${core_tests})
target_include_directories(core_tests PRIVATE tests fixtures)
target_link_libraries(core_tests PRIVATE feedrate_core GTest::gtest_main GTest::gmock
                                         nlohmann_json::nlohmann_json feedrate_warnings)
target_compile_definitions(core_tests PRIVATE
  FEEDRATE_TEST_WORKER="$<TARGET_FILE:test_worker>"
  FEEDRATE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_dependencies(core_tests test_worker)
gtest_discover_tests(core_tests DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120)

if(FEEDRATE_TORCH)
  add_executable(torch_tests
    tests/dataset_randn_test.cpp
    tests/loader_libtorch_test.cpp
    tests/resnet18_test.cpp
    tests/step_test.cpp
    tests/device_torch_test.cpp
    tests/preflight_test.cpp
    tests/at_exit_test.cpp
    bench/preflight.cpp
  )
  target_include_directories(torch_tests PRIVATE tests bench)
  target_link_libraries(torch_tests PRIVATE feedrate_torch benchmark::benchmark
                                            GTest::gtest_main GTest::gmock
                                            nlohmann_json::nlohmann_json feedrate_warnings)
  target_compile_definitions(torch_tests PRIVATE
    FEEDRATE_TEST_WORKER="$<TARGET_FILE:test_worker>"
    FEEDRATE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_dependencies(torch_tests test_worker)
  gtest_discover_tests(torch_tests DISCOVERY_TIMEOUT 120 PROPERTIES TIMEOUT 300)
endif()

# What stands in for a profiler in tests/cli, beside bench.
if(FEEDRATE_TORCH AND TARGET CUDA::nvtx3)
  add_library(nvtx_injection MODULE tests/nvtx_injection.cpp)
  set_target_properties(nvtx_injection PROPERTIES PREFIX "")
  target_link_libraries(nvtx_injection PRIVATE CUDA::nvtx3 feedrate_warnings)
endif()

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME python_scripts
           COMMAND ${Python3_EXECUTABLE} -m unittest discover -s ${PROJECT_SOURCE_DIR}/tests/python)
  set_tests_properties(python_scripts PROPERTIES TIMEOUT 600)
  if(FEEDRATE_TORCH)
    # The program as its users call it: rows, result files, bad input, Ctrl-C. They take longest, so
    # they start first.
    file(GLOB cli_tests CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests/cli
         ${PROJECT_SOURCE_DIR}/tests/cli/test_*.py)
    foreach(file IN LISTS cli_tests)
      string(REGEX REPLACE "^test_(.*)\\.py$" "bench_\\1" name ${file})
      add_test(NAME ${name}
               COMMAND ${Python3_EXECUTABLE} -m unittest discover -s ${PROJECT_SOURCE_DIR}/tests/cli
                       -p ${file})
      set_tests_properties(${name} PROPERTIES TIMEOUT 900 COST 100
                           ENVIRONMENT "FEEDRATE_BENCH=$<TARGET_FILE:bench>")
    endforeach()
  endif()
endif()
