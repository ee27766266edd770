#include "preflight.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "feedrate/loader.hpp"

namespace feedrate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const Limits kPlenty{.available_bytes = 1ULL << 40, .cores = 64, .cpu_nodes = {0}};
const DeviceInfo kGpu{.name = "cuda:0",
                      .type = DeviceType::kCuda,
                      .link_width = 16,
                      .link_width_most = 16,
                      .numa_node = 0};

std::vector<BenchRow> rows() {
  return {
      {.name = "Pipeline/baseline", .spec = {}, .run = nullptr},
      {.name = "Pipeline/workers",
       .spec = {.loader = LoaderKind::kProcesses, .workers = 8},
       .run = nullptr},
  };
}

TEST(Preflight, IsSilentWhereAllFits) {
  EXPECT_THAT(preflight_warnings(kPlenty, kGpu, rows()), IsEmpty());
  EXPECT_THAT(preflight_warnings(kPlenty, kGpu, {}), IsEmpty());
}

TEST(Preflight, NamesTheRowThatWantsMoreMemoryThanThereIs) {
  Limits limits = kPlenty;
  limits.available_bytes = host_bytes(rows()[1].spec);
  EXPECT_THAT(preflight_warnings(limits, kGpu, rows()), IsEmpty());
  limits.available_bytes -= 1;
  // 8 workers x 2 batches + 2 slots + 1, 201,327,104 bytes each
  EXPECT_THAT(preflight_warnings(limits, kGpu, rows()),
              ElementsAre(AllOf(StartsWith("memory: Pipeline/workers wants up to 3.8 GB"),
                                HasSubstr("--workers"))));
}

TEST(Preflight, CountsThePinThreadsRing) {
  const Spec plain{.loader = LoaderKind::kThreads, .workers = 1};
  Spec pinned = plain;
  pinned.memory = HostMemory::kPinned;
  pinned.pinning = Pinning::kThread;
  EXPECT_EQ(host_bytes(pinned) - host_bytes(plain), 4 * plain.shape().bytes());
}

TEST(Preflight, NamesTheRowThatAQuotaThrottles) {
  Limits limits = kPlenty;
  limits.quota_cores = 8;
  EXPECT_THAT(preflight_warnings(limits, kGpu, rows()), IsEmpty());
  limits.quota_cores = 2.5;
  EXPECT_THAT(preflight_warnings(limits, kGpu, rows()),
              ElementsAre(AllOf(StartsWith("CPU quota: "), HasSubstr("2.50 cores"),
                                HasSubstr("Pipeline/workers has 8 workers"))));
}

TEST(Preflight, SaysWhenDescriptorsWillRunOut) {
  Limits limits = kPlenty;
  limits.open_descriptors = 30;
  limits.descriptors = 32;
  EXPECT_THAT(preflight_warnings(limits, kGpu, rows()), IsEmpty());
  limits.descriptors = 31;
  EXPECT_THAT(preflight_warnings(limits, kGpu, rows()),
              ElementsAre(AllOf(StartsWith("descriptors: Pipeline/workers needs 32"),
                                HasSubstr("31 are allowed"), HasSubstr("ulimit"))));
  limits.open_descriptors = 4;  // the workers could not be started
  limits.descriptors = 9;
  EXPECT_THAT(preflight_warnings(limits, kGpu, rows()),
              ElementsAre(HasSubstr("Pipeline/workers needs 10")));
}

TEST(Preflight, CountsWhatIsOpen) {
  const std::size_t before = read_limits().open_descriptors;
  EXPECT_GE(before, 3u);
  const std::ifstream one_more("/proc/self/status");
  EXPECT_EQ(read_limits().open_descriptors, before + 1);
}

TEST(Preflight, SaysWhenTheLinkHasFewerLanesThanItCould) {
  DeviceInfo narrow = kGpu;
  narrow.link_width = 8;
  EXPECT_THAT(preflight_warnings(kPlenty, narrow, rows()),
              ElementsAre(AllOf(StartsWith("link: "), HasSubstr("8 of 16 lanes"))));
}

TEST(Preflight, SaysWhenCopiesCrossNodes) {
  DeviceInfo far = kGpu;
  far.numa_node = 1;
  EXPECT_THAT(preflight_warnings(kPlenty, far, rows()),
              ElementsAre(AllOf(StartsWith("NUMA: "), HasSubstr("--cpunodebind=1"))));
  far.numa_node = -1;
  EXPECT_THAT(preflight_warnings(kPlenty, far, rows()), IsEmpty());
}

TEST(Preflight, HasNothingToSayOfASimulatedDevice) {
  Limits none;
  none.quota_cores = 0.5;
  DeviceInfo simulated = kGpu;
  simulated.simulated = true;
  EXPECT_THAT(preflight_warnings(none, simulated, rows()), IsEmpty());
}

TEST(Preflight, EveryWarningIsOneLine) {
  Limits none;
  none.quota_cores = 0.5;
  none.descriptors = 8;
  none.cpu_nodes = {0};
  DeviceInfo bad = kGpu;
  bad.numa_node = 3;
  bad.link_width = 1;
  const auto warnings = preflight_warnings(none, bad, rows());
  EXPECT_EQ(warnings.size(), 5u);
  for (const auto& warning : warnings) {
    EXPECT_EQ(warning.find('\n'), std::string::npos) << warning;
  }
}

TEST(Preflight, ReadsThisMachine) {
  const Limits limits = read_limits();
  EXPECT_GT(limits.available_bytes, 0u);
  EXPECT_GE(limits.cores, 1);
  std::vector<std::string> keys;
  for (const auto& [key, value] : preflight_context(limits, kGpu)) {
    EXPECT_THAT(key, StartsWith("feedrate."));
    EXPECT_FALSE(value.empty()) << key;
    keys.push_back(key);
  }
  for (const std::string key :
       {"feedrate.available_GB", "feedrate.pinnable_GB", "feedrate.shm_free_GB",
        "feedrate.process_numa_nodes", "feedrate.gpu_numa_node"}) {
    EXPECT_NE(std::find(keys.begin(), keys.end(), key), keys.end()) << key;
  }
}

}  // namespace
}  // namespace feedrate
