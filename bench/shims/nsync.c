/* nsync_mu. Zeroed bytes are a free one. Built with PROBE, it shows that a program of it links. */

#include <assert.h>
#include <nsync.h>

static_assert(sizeof(nsync_mu) <= 40, "room beside the data");

void bench_nsync_get(void *mutex) { nsync_mu_lock(mutex); }
void bench_nsync_release(void *mutex) { nsync_mu_unlock(mutex); }

#ifdef PROBE
int main(void) { return 0; }
#endif
