// An NVTX injection library: what a profiler would be told, one line an event, into the file that
// FEEDRATE_NVTX_LOG names. Loaded by NVTX itself from NVTX_INJECTION64_PATH.
//
// A line has the fields kind, thread, domain, range (of start and end), colour (ARGB, hexadecimal)
// and message, with tabs between them. Only calls that name a domain are written.
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>

namespace {

struct Log {
  std::mutex mutex;
  std::FILE* file = nullptr;
  std::deque<std::string> texts;  // what domain and string handles point to: these never move
  nvtxRangeId_t last = 0;
};

// NVTX calls until the process ends, so it is never destroyed.
Log& the_log() {
  static Log& log = *new Log;
  return log;
}

template <typename Handle>
Handle keep(const char* text) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  return reinterpret_cast<Handle>(&log.texts.emplace_back(text == nullptr ? "" : text));
}

std::string kept(const void* handle) {
  return handle == nullptr ? "" : *static_cast<const std::string*>(handle);
}

std::string message_of(const nvtxEventAttributes_t& event) {
  switch (event.messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      return event.message.ascii;
    case NVTX_MESSAGE_TYPE_REGISTERED:
      return kept(event.message.registered);
    default:
      return "";
  }
}

nvtxRangeId_t write(const char* kind, nvtxDomainHandle_t domain, nvtxRangeId_t range,
                    const nvtxEventAttributes_t* event) {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  if (range == 0 && std::string(kind) == "start") {
    range = ++log.last;
  }
  const bool coloured = event != nullptr && event->colorType == NVTX_COLOR_ARGB;
  std::fprintf(log.file, "%s\t%d\t%s\t%llu\t%08x\t%s\n", kind, static_cast<int>(gettid()),
               kept(domain).c_str(), static_cast<unsigned long long>(range),
               coloured ? event->color : 0, event != nullptr ? message_of(*event).c_str() : "");
  std::fflush(log.file);
  return range;
}

nvtxDomainHandle_t NVTX_API domain_create(const char* name) {
  return keep<nvtxDomainHandle_t>(name);
}
nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t, const char* text) {
  return keep<nvtxStringHandle_t>(text);
}
nvtxRangeId_t NVTX_API start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  return write("start", domain, 0, event);
}
void NVTX_API end(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
  write("end", domain, range, nullptr);
}
int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  write("push", domain, 0, event);
  return 0;
}
int NVTX_API pop(nvtxDomainHandle_t domain) {
  write("pop", domain, 0, nullptr);
  return 0;
}

}  // namespace

// Called once for each copy of NVTX in the process: LibTorch has one of its own.
extern "C" __attribute__((visibility("default"))) int NVTX_API
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  Log& log = the_log();
  const char* const path = std::getenv("FEEDRATE_NVTX_LOG");
  if (log.file == nullptr && path != nullptr) {
    log.file = std::fopen(path, "a");
  }
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (log.file == nullptr || callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainCreateA) {
    return 0;
  }
  const auto set = [&](NvtxCallbackIdCore2 id, auto* function) {
    *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  set(NVTX_CBID_CORE2_DomainCreateA, domain_create);
  set(NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
  set(NVTX_CBID_CORE2_DomainRangeStartEx, start);
  set(NVTX_CBID_CORE2_DomainRangeEnd, end);
  set(NVTX_CBID_CORE2_DomainRangePushEx, push);
  set(NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}
