/* The leaves of a B-tree whose pages have a latch of their own each, in memory of the engine's, under processes that
 * are killed while they insert and split.
 *
 *   cc -std=c11 btree.c $(pkg-config --cflags --libs retrial) -o btree
 *   ./btree INSTANCE       a name under /dev/shm, or a path
 *
 * The pages are a B-link tree's lowest level: each has a key below which its own keys are, and the page on its right.
 * A split fills the new page first, then links it by `next`, `high` and `count`. A writer that is killed in between
 * leaves the latch with its death, and the next one repairs the page: what lies at or above `high` was moved, and
 * keys are put in order again. Readers share a latch. */
#define _GNU_SOURCE
#include <retrial.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 1024, KEYS = 16, WRITERS = 2, EACH = 300, KILLS = 40 };

struct page {
    retrial_mutex latch; /* all bytes 0: bound by its first get */
    uint64_t high;       /* its keys are below; the last one's is UINT64_MAX */
    uint32_t count, next;
    uint64_t keys[KEYS];
};

struct tree {
    uint32_t used;     /* pages, the first of them is the leftmost */
    uint32_t repaired; /* pages after a holder's death */
    struct page pages[PAGES];
};

static struct tree *tree;
static retrial_session *session;

static void check(int answer) {
    if (answer != RETRIAL_OK) {
        fprintf(stderr, "%s: %s\n", retrial_strerror(answer), retrial_message());
        exit(1);
    }
}

static int in_order(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* What a killed writer has left: keys that a split has moved, a key twice while others were shifted. */
static void repair(struct page *page) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < page->count; i++) {
        const uint64_t key = page->keys[i];
        int is_there = key >= page->high;
        for (uint32_t j = 0; j < kept && !is_there; j++) {
            is_there = page->keys[j] == key;
        }
        if (!is_there) {
            page->keys[kept++] = key;
        }
    }
    qsort(page->keys, kept, sizeof *page->keys, in_order);
    page->count = kept;
    __atomic_fetch_add(&tree->repaired, 1, __ATOMIC_RELAXED);
}

static struct page *latch(uint32_t number, int mode) {
    struct page *page = &tree->pages[number];
    int answer = retrial_mutex_get(session, &page->latch, mode, RETRIAL_HERE);
    if (answer == RETRIAL_OWNER_DIED && mode == RETRIAL_X) {
        repair(page);
        answer = retrial_mutex_consistent(session, &page->latch);
    }
    check(answer);
    return page;
}

static void unlatch(struct page *page) { check(retrial_mutex_release(session, &page->latch)); }

/* The page of a key, latched: from left to right, the next one before this one is given back. */
static struct page *find(uint64_t key) {
    struct page *page = latch(0, RETRIAL_X);
    while (key >= page->high) {
        struct page *next = latch(page->next, RETRIAL_X);
        unlatch(page);
        page = next;
    }
    return page;
}

/* Moves the upper half of a full page to a new one. Killed before `high` is stored, it has changed nothing that is
 * looked at; afterwards, `repair` drops what was moved. */
static void split(struct page *page, int dies) {
    const uint32_t number = __atomic_fetch_add(&tree->used, 1, __ATOMIC_RELAXED);
    if (number >= PAGES) {
        fprintf(stderr, "no page is left\n");
        exit(1);
    }
    struct page *right = &tree->pages[number];
    memcpy(right->keys, page->keys + KEYS / 2, sizeof *page->keys * (KEYS / 2));
    right->count = KEYS / 2;
    right->high = page->high;
    right->next = page->next;
    page->next = number;
    __atomic_store_n(&page->high, right->keys[0], __ATOMIC_RELEASE);
    if (dies) {
        raise(SIGKILL);
    }
    page->count = KEYS / 2;
}

static int has(const struct page *page, uint64_t key) {
    return bsearch(&key, page->keys, page->count, sizeof key, in_order) != NULL;
}

/* Puts a key in, if it is not there. `dies`: amid a split, or amid the shift of the keys above. */
static void insert(uint64_t key, int dies) {
    struct page *page = find(key);
    while (page->count == KEYS) {
        split(page, dies);
        unlatch(page);
        page = find(key);
    }
    if (!has(page, key)) {
        uint32_t at = page->count;
        page->keys[at] = at > 0 ? page->keys[at - 1] : key;
        __atomic_store_n(&page->count, at + 1, __ATOMIC_RELEASE);
        for (; at > 0 && page->keys[at - 1] > key; at--) {
            page->keys[at] = page->keys[at - 1];
        }
        if (dies) {
            raise(SIGKILL);
        }
        page->keys[at] = key;
    }
    unlatch(page);
}

/* The i-th key of a writer, or of those that die: all over the tree, no two the same (the factor is odd). */
static uint64_t key_of(uint32_t writer, uint32_t i) {
    return (i * (WRITERS + 1u) + writer) * 2654435761u;
}

/* A process that puts keys in, or dies amid the first. */
static pid_t start(retrial_instance *instance, uint32_t writer, uint32_t from, uint32_t to, int dies) {
    pid_t child = fork();
    if (child == 0) {
        check(retrial_session_open(instance, "writer", &session));
        for (uint32_t i = from; i < to; i++) {
            insert(key_of(writer, i), dies);
        }
        exit(0);
    }
    return child;
}

/* How many keys there are, if they are in order. */
static uint32_t count(void) {
    uint32_t keys = 0;
    uint64_t last = 0;
    for (uint32_t number = 0, is_last = 0; !is_last;) {
        struct page *page = latch(number, RETRIAL_X); /* repaired, if a holder died */
        unlatch(page);
        page = latch(number, RETRIAL_S);
        for (uint32_t i = 0; i < page->count; i++, keys++) {
            if ((keys > 0 && page->keys[i] <= last) || page->keys[i] >= page->high) {
                fprintf(stderr, "page %u has keys out of order\n", number);
                exit(1);
            }
            last = page->keys[i];
        }
        is_last = page->high == UINT64_MAX;
        number = page->next;
        unlatch(page);
    }
    return keys;
}

int main(int argc, char **argv) {
    retrial_instance *instance;
    int status;
    if (argc != 2) {
        fprintf(stderr, "usage: btree INSTANCE\n");
        return 2;
    }
    tree = mmap(NULL, sizeof *tree, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tree == MAP_FAILED) {
        return 1;
    }
    tree->used = 1;
    tree->pages[0].high = UINT64_MAX;
    check(retrial_instance_create(argv[1], NULL, 0600, &instance));
    for (uint32_t writer = 0; writer < WRITERS; writer++) {
        start(instance, writer, 0, EACH, 0);
    }
    check(retrial_session_open(instance, "main", &session));
    for (uint32_t i = 0; i < KILLS; i++) {
        pid_t victim = start(instance, WRITERS, i, i + 1, 1);
        if (waitpid(victim, &status, 0) != victim || !WIFSIGNALED(status)) {
            fprintf(stderr, "a holder was to be killed\n");
            return 1;
        }
        insert(key_of(WRITERS, i), 0); /* what the dead one could not */
    }
    while (wait(&status) > 0) {
        if (status != 0) {
            return 1;
        }
    }
    printf("%u keys in order, %d holders killed, ", count(), KILLS);
    printf("%u pages made good\n", tree->repaired);
    check(retrial_session_close(session));
    check(retrial_instance_close(instance));
    check(retrial_instance_remove(argv[1]));
    return 0;
}
