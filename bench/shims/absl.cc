// absl::Mutex. Zeroed bytes are a free one (absl::kConstInit). Built with PROBE, it shows that a program of it links.

#include "absl/synchronization/mutex.h"

static_assert(sizeof(absl::Mutex) <= 40, "room beside the data");

extern "C" void bench_absl_get(void *mutex) { static_cast<absl::Mutex *>(mutex)->Lock(); }
extern "C" void bench_absl_release(void *mutex) { static_cast<absl::Mutex *>(mutex)->Unlock(); }

#ifdef PROBE
int main() { return 0; }
#endif
