#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../fixtures/fd.hpp"
#include "feedrate/device.hpp"
#include "feedrate/error.hpp"
#include "feedrate/loader.hpp"
#include "recording_device.hpp"
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

  // Ctrl-C after that long, while batches are taken.
  void expect_interrupted(Source& source, useconds_t after_us) {
    std::thread ctrl_c([this, after_us] {
      usleep(after_us);
      stop_ = true;
    });
    EXPECT_THROW(
        for (int turn = 0; turn < 1000; ++turn) { source.next(); }, Interrupted);
    ctrl_c.join();
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

TEST_F(Pool, StartsNoneWhereThereIsNoMemoryForAll) {
  constexpr int kFarTooMany = 10'000'000;
  try {
    pool_.ensure(kFarTooMany);
    FAIL() << "this machine has room for all of them?";
  } catch (const LoaderError& error) {
    EXPECT_THAT(error.what(), testing::MatchesRegex("[0-9]+ more loader processes will need about "
                                                    "[0-9]+ bytes of memory, and .*"));
  }
  EXPECT_THAT(pool_.pids(), testing::IsEmpty()) << "one was looked at";
  expect_good_batches(spec());
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
  expect_interrupted(*source, 20'000);
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

// --- When it dies

// Of /proc/PID/stat: R, S, T for stopped, t for held by a debugger, Z.
char state_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '?' : text[name_end + 2];
}

bool comes_to(int pid, char state) {
  for (int look = 0; look < 2000 && state_of(pid) != state; ++look) {
    usleep(5'000);
  }
  return state_of(pid) == state;
}

// "Within a second", with room for a machine that has other things to do.
constexpr TimeNs kSoon_ns = 8'000'000'000;

class Fault {
 public:
  explicit Fault(int pid) : name_("loader process 0 \\(pid " + std::to_string(pid) + "\\)") {}

  // The source's next batch, or one of the few that are there already, is the error.
  void expect(Source& source, const std::string& what) const {
    const TimeNs begin = monotonic_now();
    std::string error = "no error";
    for (int turn = 0; turn < 10 && error == "no error"; ++turn) {
      error = error_of(source);
    }
    EXPECT_THAT(error, MatchesRegex(name_ + what));
    EXPECT_LT(monotonic_now() - begin, kSoon_ns);
    EXPECT_EQ(error_of(source), error) << "and on every later batch";
  }

 private:
  std::string name_;
};

constexpr const char* kKilled = " was killed by signal 9 \\(Killed\\)";

TEST_P(DyingWorker, MayDieAtStartUp) {
  behave("never starts");
  const auto source = make(spec(GetParam()));
  const int victim = pool_.pids()[0];
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  wait_until_dead(victim);
  Fault(victim).expect(*source, kKilled);
}

TEST_P(DyingWorker, MayDieWhileItFillsABatch) {
  behave("stuck 1");
  const auto source = make(spec(GetParam()));
  const int victim = pool_.pids()[0];  // sample 1 is in batch 0, and that one is its
  std::thread killer([victim] {
    usleep(100'000);
    kill(victim, SIGKILL);
  });
  Fault(victim).expect(*source, kKilled);
  killer.join();
  EXPECT_FALSE(exists(victim));
}

TEST_P(DyingWorker, MayDieWhileItIsIdle) {
  const auto source = make(spec(GetParam()));
  source->next();
  usleep(100'000);  // the queue is full by now
  const int victim = pool_.pids()[0];
  ASSERT_TRUE(comes_to(victim, 'S'));
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  wait_until_dead(victim);
  Fault(victim).expect(*source, kKilled);
}

// --- Workers that are stopped

constexpr const char* kStopped =
    " is stopped \\(signal 19 \\(Stopped \\(signal\\)\\)\\): continue it or end it";

TEST_P(DyingWorker, ThatIsStoppedIsReportedWhenItsBatchIsWaitedFor) {
  auto source = make(spec(GetParam()));
  source->next();
  const int victim = pool_.pids()[0];
  ASSERT_EQ(kill(victim, SIGSTOP), 0);
  ASSERT_TRUE(comes_to(victim, 'T'));
  Fault(victim).expect(*source, kStopped);
  source.reset();
  EXPECT_FALSE(exists(victim)) << "it could not close, so it was ended";
  expect_good_batches(spec(GetParam()));
}

TEST_P(DyingWorker, ThatIsStoppedFromTheStartIsReported) {
  pool_.ensure(kWorkers);
  const int victim = pool_.pids()[0];
  ASSERT_EQ(kill(victim, SIGSTOP), 0);
  ASSERT_TRUE(comes_to(victim, 'T'));
  const auto source = make(spec(GetParam()));
  Fault(victim).expect(*source, kStopped);
}

TEST_P(DyingWorker, ThatIsContinuedInTimeGoesOn) {
  const auto source = make(spec(GetParam()));
  source->next();
  const int victim = pool_.pids()[0];
  ASSERT_EQ(kill(victim, SIGSTOP), 0);
  ASSERT_TRUE(comes_to(victim, 'T'));
  std::thread other([victim] {
    usleep(50'000);
    kill(victim, SIGCONT);
  });
  for (std::int64_t index = 1; index < 20; ++index) {
    EXPECT_EQ(source->next().index, index);
  }
  other.join();
}

TEST_P(DyingWorker, ThatIsOnlySlowIsNotStopped) {
  behave("slow");
  Spec slow = spec(GetParam());
  slow.batch = 60;  // 1.2 s a batch
  const auto source = make(slow);
  EXPECT_EQ(source->next().index, 0);
}

TEST_P(DyingWorker, ThatADebuggerHoldsIsNotStopped) {
  const auto source = make(spec(GetParam()));
  source->next();
  const int victim = pool_.pids()[0];
  if (ptrace(PTRACE_SEIZE, victim, nullptr, nullptr) != 0) {
    GTEST_SKIP() << "no process may be traced here";
  }
  ASSERT_EQ(ptrace(PTRACE_INTERRUPT, victim, nullptr, nullptr), 0);
  ASSERT_TRUE(comes_to(victim, 't'));
  expect_interrupted(*source, 1'500'000);
  ptrace(PTRACE_DETACH, victim, nullptr, nullptr);
}

// --- What the kernel refuses

// A limit of another process, put back at the end.
class Limit {
 public:
  Limit(int pid, decltype(RLIMIT_NOFILE) resource, rlim_t value) : pid_(pid), resource_(resource) {
    set_ = prlimit(pid_, resource_, nullptr, &before_) == 0;
    const rlimit lower{value, before_.rlim_max};
    set_ = set_ && prlimit(pid_, resource_, &lower, nullptr) == 0;
  }
  ~Limit() { prlimit(pid_, resource_, &before_, nullptr); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
  bool set() const { return set_; }

 private:
  int pid_;
  decltype(RLIMIT_NOFILE) resource_;
  rlimit before_{};
  bool set_ = false;
};

// What would be too large is an error, as in bench and in its workers, not the end of the process.
struct IgnoreFileSize {
  IgnoreFileSize() { std::signal(SIGXFSZ, SIG_IGN); }
  IgnoreFileSize(const IgnoreFileSize&) = delete;
  IgnoreFileSize& operator=(const IgnoreFileSize&) = delete;
  ~IgnoreFileSize() { std::signal(SIGXFSZ, SIG_DFL); }
};

TEST_F(Pool, AWorkerThatIsRefusedADescriptorSaysSo) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "the sanitizer looks at an exception's type through a pipe, for which there is no "
         "descriptor";
#endif
  pool_.ensure(kWorkers);
  const int victim = pool_.pids()[0];
  const Limit limit(victim, RLIMIT_NOFILE, 4);  // the three standard ones and its socket
  ASSERT_TRUE(limit.set());
  const auto source = make(spec());
  Fault(victim).expect(
      *source, ": out of memory: shared host memory \\(Too many open files\\), [0-9]+ bytes.*");
}

TEST_F(Pool, AWorkerThatIsRefusedMemorySaysSo) {
  const IgnoreFileSize ignore;
  pool_.ensure(kWorkers);
  const int victim = pool_.pids()[0];
  const Limit limit(victim, RLIMIT_FSIZE, 4096);
  ASSERT_TRUE(limit.set());
  const auto source = make(spec());
  Fault(victim).expect(*source,
                       ": out of memory: shared host memory \\(File too large\\), [0-9]+ bytes.*");
}

TEST_F(Pool, ARingThatIsRefusedNamesItsSize) {
  const IgnoreFileSize ignore;
  {
    const Limit limit(getpid(), RLIMIT_FSIZE, 4096);
    ASSERT_TRUE(limit.set());
    try {
      make(spec(Buffers::kRing));
      FAIL() << "got a ring that is larger than a file may be";
    } catch (const OutOfMemory& error) {
      EXPECT_THAT(error.what(), HasSubstr("shared host memory (File too large)"));
    }
  }
  expect_good_batches(spec(Buffers::kRing));
}

TEST_F(Pool, StartsNoneWhereThereAreNoDescriptorsForAll) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs a descriptor for an exception";
#endif
  const Fd highest(dup(0));  // no free one below it
  {
    // Two more: the first worker's socket keeps one of them.
    const Limit limit(getpid(), RLIMIT_NOFILE, static_cast<rlim_t>(highest.get()) + 3);
    ASSERT_TRUE(limit.set());
    try {
      pool_.ensure(kWorkers);
      FAIL() << "started more than it had descriptors for";
    } catch (const LoaderError& error) {
      EXPECT_STREQ(error.what(),
                   "no socket for a loader process: Too many open files: raise ulimit -n");
    }
    EXPECT_THAT(pool_.pids(), testing::IsEmpty());
    const Fd free(dup(0));
    EXPECT_TRUE(free) << "a socket was kept";
  }
  expect_good_batches(spec());
}

TEST_F(Pool, TheLoopThatIsRefusedADescriptorSaysSo) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "the sanitizer looks at an exception's type through a pipe, for which there is no "
         "descriptor";
#endif
  pool_.ensure(kWorkers);
  const Fd highest(dup(0));  // no free one below it
  std::string error = "no error";
  {
    const auto source = make(spec());
    const Limit limit(getpid(), RLIMIT_NOFILE, static_cast<rlim_t>(highest.get()));
    ASSERT_TRUE(limit.set());
    for (int turn = 0; turn < 10 && error == "no error"; ++turn) {
      error = error_of(*source);
    }
  }
  EXPECT_THAT(error, HasSubstr("a descriptor could not be received: too many are open"));
  expect_good_batches(spec());
}

// --- Page-locked memory that the workers write

TEST_F(Pool, ARingIsPageLockedOnceForAllItsBatches) {
  RecordingDevice device;
  Spec direct = spec(Buffers::kRing);
  direct.pinning = Pinning::kDirect;
  direct.memory = HostMemory::kPinned;
  {
    const auto source =
        make_source(direct, {.device = device, .datasets = datasets_, .processes = &pool_});
    ASSERT_EQ(device.registered.size(), 1u);
    const std::span<std::byte> locked = device.registered.front();
    for (std::int64_t index = 0; index < 40; ++index) {
      const HostBatch batch = source->next();
      EXPECT_EQ(batch.index, index);
      EXPECT_EQ(batch.memory, HostMemory::kPinned);
      EXPECT_EQ(batch.fingerprint, fingerprint_of(direct.shape(), batch.images, batch.labels));
      EXPECT_GE(batch.images.data(), locked.data());
      EXPECT_LE(batch.labels.data() + batch.labels.size(), locked.data() + locked.size());
    }
    EXPECT_EQ(device.live_registrations, 1);
  }
  EXPECT_EQ(device.registered.size(), 1u);
  EXPECT_EQ(device.live_registrations, 0);
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
