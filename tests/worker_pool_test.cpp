#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../fixtures/fd.hpp"
#include "feedrate/device.hpp"
#include "feedrate/error.hpp"
#include "feedrate/loader.hpp"
#include "test_datasets.hpp"

namespace feedrate {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// Waits until a child of this process has ended; leaves it to be reaped by its owner.
void wait_until_dead(int pid) {
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  ASSERT_EQ(info.si_pid, pid);
}

bool exists(int pid) { return kill(pid, 0) == 0; }

std::string error_of(Source& source) {
  try {
    source.next();
  } catch (const LoaderError& error) {
    return error.what();
  }
  return "no error";
}

class Pool : public testing::Test {
 protected:
  static constexpr int kWorkers = 3;

  Pool() { unsetenv("FEEDRATE_TEST_BEHAVIOUR"); }

  // Before the first worker starts: they inherit it.
  void behave(const std::string& behaviour) {
    setenv("FEEDRATE_TEST_BEHAVIOUR", behaviour.c_str(), 1);
  }
  Spec spec(Buffers buffers = Buffers::kFresh) const {
    return {.dataset = DatasetKind::kReplay,  // misbehaves as told
            .batch = 4,
            .image = 32,
            .loader = LoaderKind::kProcesses,
            .workers = kWorkers,
            .prefetch = 2,
            .buffers = buffers};
  }
  std::unique_ptr<Source> make(const Spec& spec) {
    return make_source(
        spec, {.device = *device_, .datasets = datasets_, .processes = &pool_, .stop = &stop_});
  }
  void expect_good_batches(const Spec& spec, int count = 20) {
    const auto source = make(spec);
    for (std::int64_t index = 0; index < count; ++index) {
      const HostBatch batch = source->next();
      EXPECT_EQ(batch.index, index);
      EXPECT_EQ(batch.fingerprint, fingerprint_of(spec.shape(), batch.images, batch.labels));
    }
  }

  std::unique_ptr<Device> device_ = make_device({cpu_device()}, "cpu");
  std::atomic<bool> stop_ = false;
  DatasetTable datasets_ = test_datasets();
  WorkerPool pool_{FEEDRATE_TEST_WORKER};
};

TEST_F(Pool, StartsNothingUntilAsked) { EXPECT_TRUE(pool_.pids().empty()); }

TEST_F(Pool, KeepsItsWorkersFromRowToRow) {
  pool_.ensure(kWorkers);
  const std::vector<int> pids = pool_.pids();
  ASSERT_EQ(pids.size(), static_cast<std::size_t>(kWorkers));
  for (const Buffers buffers : {Buffers::kFresh, Buffers::kRing, Buffers::kFresh}) {
    for (const int count : {20, 0, 1}) {  // all have started before the first early end
      expect_good_batches(spec(buffers), count);
    }
  }
  pool_.ensure(1);
  EXPECT_EQ(pool_.pids(), pids);
  pool_.ensure(kWorkers + 1);
  EXPECT_EQ(pool_.pids().size(), static_cast<std::size_t>(kWorkers + 1));
}

TEST_F(Pool, ServesFewerWorkersThanItHas) {
  pool_.ensure(kWorkers);
  Spec few = spec();
  few.workers = 1;
  expect_good_batches(few);
}

TEST_F(Pool, LeavesNoProcessBehind) {
  std::vector<int> pids;
  {
    WorkerPool pool(FEEDRATE_TEST_WORKER);
    pool.ensure(kWorkers);
    pids = pool.pids();
    kill(pids[1], SIGSTOP);  // one that does not hear us
  }
  for (const int pid : pids) {
    EXPECT_FALSE(exists(pid)) << "neither running nor a zombie";
  }
}

TEST_F(Pool, GivesWorkersNoDescriptorButTheirOwn) {
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd inheritable(fcntl(null.get(), F_DUPFD, 20));
  expect_good_batches(spec(Buffers::kRing));
  expect_good_batches(spec(Buffers::kFresh));
  for (const int pid : pool_.pids()) {
    std::set<std::string> descriptors;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
      descriptors.insert(entry.path().filename());
    }
    EXPECT_EQ(descriptors, (std::set<std::string>{"0", "1", "2", "3"}));
  }
}

TEST_F(Pool, ServesOneLoaderAtATime) {
  const auto first = make(spec());
  EXPECT_THROW(make(spec()), LoaderError);
  EXPECT_EQ(first->next().index, 0);
}

TEST_F(Pool, WorkersAreNotToBeStartedByHand) {
  const std::string by_hand = FEEDRATE_TEST_WORKER " 0 </dev/null 2>/dev/null";
  const int status = std::system(by_hand.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST_F(Pool, NamesAProgramThatCannotBeStarted) {
  WorkerPool pool("/no/such/worker");
  try {
    pool.ensure(1);
    FAIL() << "started a program that does not exist";
  } catch (const LoaderError& error) {
    EXPECT_STREQ(error.what(),
                 "loader process /no/such/worker could not be started: No such file or directory");
  }
}

TEST_F(Pool, ReportsAProgramThatIsNoWorker) {
  WorkerPool pool("/bin/false");
  Spec one = spec();
  one.workers = 1;
  try {
    const auto source =
        make_source(one, {.device = *device_, .datasets = datasets_, .processes = &pool});
    source->next();
    FAIL() << "got a batch from a program that makes none";
  } catch (const LoaderError& error) {
    EXPECT_THAT(error.what(),
                MatchesRegex("loader process 0 \\(pid [0-9]+\\) ended with exit status 1"));
  }
}

// --- Workers that die ----------------------------------------------------------------------------

class DyingWorker : public Pool, public testing::WithParamInterface<Buffers> {};

std::string buffers_name(const testing::TestParamInfo<Buffers>& info) {
  return std::string(name_of(info.param));
}

INSTANTIATE_TEST_SUITE_P(Buffers, DyingWorker, testing::Values(Buffers::kFresh, Buffers::kRing),
                         buffers_name);

TEST_P(DyingWorker, SurfacesOnTheNextBatchAndOnEveryLaterOne) {
  auto source = make(spec(GetParam()));
  source->next();
  const int victim = pool_.pids()[1];
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  wait_until_dead(victim);
  const std::string expected =
      "loader process 1 (pid " + std::to_string(victim) + ") was killed by signal 9 (Killed)";
  EXPECT_EQ(error_of(*source), expected);
  EXPECT_EQ(error_of(*source), expected);
  EXPECT_FALSE(exists(victim)) << "reaped";

  source.reset();
  expect_good_batches(spec(GetParam()));
  EXPECT_EQ(pool_.pids().size(), static_cast<std::size_t>(kWorkers));
  EXPECT_NE(pool_.pids()[1], victim);
}

TEST_P(DyingWorker, SurfacesWhileTheLoopWaits) {
  behave("stuck 40");
  const auto source = make(spec(GetParam()));
  for (int turn = 0; turn < 10; ++turn) {
    source->next();
  }
  std::thread killer([pids = pool_.pids()] {
    usleep(20'000);
    for (const int pid : pids) {
      kill(pid, SIGKILL);
    }
  });
  const std::string error = error_of(*source);
  killer.join();
  EXPECT_THAT(error, HasSubstr("was killed by signal 9 (Killed)"));
}

TEST_P(DyingWorker, SurfacesThroughAPinThread) {
  behave("exits 41");
  Spec pinned = spec(GetParam());
  pinned.pinning = Pinning::kThread;
  pinned.memory = HostMemory::kPinned;
  const auto source = make(pinned);
  std::string error = "no error";
  for (int turn = 0; turn < 12 && error == "no error"; ++turn) {
    error = error_of(*source);
  }
  EXPECT_THAT(error, MatchesRegex("loader process [012] \\(pid [0-9]+\\) "
                                  "ended with exit status 7"));
}

TEST_P(DyingWorker, SaysWithWhichStatusItEnded) {
  behave("exits 41");
  const auto source = make(spec(GetParam()));
  std::string error = "no error";
  int handed_over = 0;
  for (; handed_over < 12 && error == "no error"; ++handed_over) {
    error = error_of(*source);
  }
  EXPECT_THAT(error, MatchesRegex("loader process [012] \\(pid [0-9]+\\) "
                                  "ended with exit status 7"));
  EXPECT_LE(handed_over, 11) << "sample 41 is in batch 10";
}

TEST_P(DyingWorker, IsReplacedWhenItDiesBetweenTwoRows) {
  expect_good_batches(spec(GetParam()));
  const std::vector<int> before = pool_.pids();
  ASSERT_EQ(kill(before[2], SIGTERM), 0);
  wait_until_dead(before[2]);
  expect_good_batches(spec(GetParam()));
  const std::vector<int> after = pool_.pids();
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1], before[1]);
  EXPECT_NE(after[2], before[2]);
}

TEST_P(DyingWorker, ThatIsOnlyStoppedHangsNeitherCtrlCNorTheEnd) {
  auto source = make(spec(GetParam()));
  source->next();
  const std::vector<int> before = pool_.pids();
  for (const int pid : before) {
    ASSERT_EQ(kill(pid, SIGSTOP), 0);
  }
  std::thread ctrl_c([&] {
    usleep(20'000);
    stop_ = true;
  });
  EXPECT_THROW(
      for (int turn = 0; turn < 1000; ++turn) { source->next(); }, Interrupted);
  ctrl_c.join();
  source.reset();
  for (const int pid : before) {
    EXPECT_FALSE(exists(pid)) << "did not come back, so it was ended";
  }
  stop_ = false;
  expect_good_batches(spec(GetParam()));
}

TEST_P(DyingWorker, ThatNeverFinishesASampleIsReplaced) {
  behave("stuck 1");
  {
    const auto source = make(spec(GetParam()));
    usleep(50'000);
  }
  Spec good = spec(GetParam());
  good.dataset = DatasetKind::kRandn;
  expect_good_batches(good);
}

TEST_F(Pool, WorkersLeaveCtrlCToTheProgram) {
  const auto source = make(spec());
  source->next();
  for (const int pid : pool_.pids()) {
    ASSERT_EQ(kill(pid, SIGINT), 0);
  }
  for (int turn = 0; turn < 30; ++turn) {
    source->next();
  }
}

TEST_F(Pool, WorkersEndWithTheirParent) {
  // What the dead parent leaves behind becomes our child, so that we see how it ends.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  constexpr int kAnswer = 9;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), kAnswer);
  std::string program = FEEDRATE_TEST_WORKER;
  std::string parent = "parent";
  std::string answer = std::to_string(kAnswer);
  char* const arguments[] = {program.data(), parent.data(), answer.data(), nullptr};
  behave("slow");
  pid_t middle = 0;
  ASSERT_EQ(posix_spawn(&middle, program.c_str(), &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  write_end.close();

  std::unique_ptr<FILE, int (*)(FILE*)> lines(fdopen(dup(read_end.get()), "r"), fclose);
  int workers[2] = {};
  for (int& worker : workers) {
    ASSERT_EQ(fscanf(lines.get(), "%d", &worker), 1);
    ASSERT_TRUE(exists(worker));
  }
  ASSERT_EQ(kill(middle, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(middle, &status, 0), middle);
  ASSERT_TRUE(WIFSIGNALED(status));
  for (const int worker : workers) {
    EXPECT_EQ(waitpid(worker, &status, 0), worker);  // hangs, and so fails, if it lives on
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// --- Workers that talk nonsense ------------------------------------------------------------------

struct Lie {
  const char* about;
  Buffers buffers;
  const char* expected;

  friend void PrintTo(const Lie& lie, std::ostream* out) { *out << "a lie about " << lie.about; }
};

class LyingWorker : public Pool, public testing::WithParamInterface<Lie> {};

constexpr const char* kNoMessage = "sent what is no message";
constexpr const char* kNotAsked = "sent a batch that it was not asked for";
constexpr const char* kBadMemory = "sent memory that is not of the batch's size, or can be resized";

std::string lie_name(const testing::TestParamInfo<Lie>& info) {
  std::string name = std::string(info.param.about) + "_" + std::string(name_of(info.param.buffers));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(About, LyingWorker,
                         testing::Values(Lie{"length", Buffers::kFresh, kNoMessage},
                                         Lie{"more length", Buffers::kFresh, kNoMessage},
                                         Lie{"magic", Buffers::kFresh, kNoMessage},
                                         Lie{"kind", Buffers::kFresh, kNotAsked},
                                         Lie{"index", Buffers::kFresh, kNotAsked},
                                         Lie{"slot", Buffers::kFresh, kNotAsked},
                                         Lie{"slot", Buffers::kRing, kNotAsked},
                                         Lie{"size", Buffers::kFresh, kBadMemory},
                                         Lie{"seals", Buffers::kFresh, kBadMemory},
                                         Lie{"memory", Buffers::kFresh, kBadMemory}),
                         lie_name);

TEST_P(LyingWorker, IsFoundOutAndReplaced) {
  behave(std::string("lies ") + GetParam().about);
  {
    const auto source = make(spec(GetParam().buffers));
    const std::string expected =
        std::string("loader process 0 \\(pid [0-9]+\\) ") + GetParam().expected;
    EXPECT_THAT(error_of(*source), MatchesRegex(expected));
    EXPECT_THAT(error_of(*source), MatchesRegex(expected));
  }
  Spec good = spec(GetParam().buffers);
  good.dataset = DatasetKind::kRandn;
  expect_good_batches(good);
}

}  // namespace
}  // namespace feedrate
