/* Spin locks of Concurrency Kit, which are inline functions. Built with PROBE, it shows that a program of it links. */

#include <assert.h>
#include <ck_spinlock.h>

static_assert(sizeof(ck_spinlock_fas_t) <= 40 && sizeof(ck_spinlock_ticket_t) <= 40, "room beside the data");
static_assert(sizeof(struct ck_spinlock_mcs) <= 64, "a node has a cache line");

void bench_ck_fas_get(void *lock) { ck_spinlock_fas_lock(lock); }
void bench_ck_fas_release(void *lock) { ck_spinlock_fas_unlock(lock); }

void bench_ck_ticket_get(void *lock) { ck_spinlock_ticket_lock(lock); }
void bench_ck_ticket_release(void *lock) { ck_spinlock_ticket_unlock(lock); }

void bench_ck_mcs_get(void *lock, void *node) { ck_spinlock_mcs_lock(lock, node); }
void bench_ck_mcs_release(void *lock, void *node) { ck_spinlock_mcs_unlock(lock, node); }

#ifdef PROBE
int main(void) { return 0; }
#endif
