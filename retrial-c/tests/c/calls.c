/* Modes, deadlines, conversions, parameters, sessions that end with their thread. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

static retrial_instance *instance;
static retrial_mutex *mutex;
static uint64_t *data;

static void modes(retrial_session *one, retrial_session *other) {
    const int beside[4][4] = {
        /* of:            S  X  LX E, got beside: */
        [RETRIAL_S] = {1, 0, 0, 1},
        [RETRIAL_X] = {0, 0, 0, 0},
        [RETRIAL_LX] = {0, 0, 0, 0},
        [RETRIAL_E] = {0, 0, 0, 0},
    };
    for (int held = 0; held < 4; held++) {
        for (int mode = 0; mode < 4; mode++) {
            OK(retrial_mutex_get(one, mutex, held, RETRIAL_HERE));
            ANSWERS(beside[held][mode] ? RETRIAL_OK : RETRIAL_BUSY, retrial_mutex_try(other, mutex, mode, RETRIAL_HERE));
            if (beside[held][mode]) {
                OK(retrial_mutex_release(other, mutex));
            }
            OK(retrial_mutex_release(one, mutex));
        }
    }
}

static void deadlines(retrial_session *one, retrial_session *other) {
    struct timespec now;
    OK(retrial_mutex_get(one, mutex, RETRIAL_LX, RETRIAL_LOCATION("long")));
    clock_gettime(CLOCK_MONOTONIC, &now);
    ANSWERS(RETRIAL_TIMED_OUT, retrial_mutex_get_until(other, mutex, RETRIAL_X, retrial_deadline_of(&now), NULL));
    uint64_t deadline = retrial_deadline_ns(2000000);
    ANSWERS(RETRIAL_TIMED_OUT, retrial_mutex_get_until(other, mutex, RETRIAL_S, deadline, RETRIAL_HERE));
    CHECK(retrial_deadline_ns(0) >= deadline && retrial_deadline_ns(UINT64_MAX) == RETRIAL_FOREVER);
    const struct timespec past = {-1, 999999999}, far = {INT64_MAX, 0};
    CHECK(retrial_deadline_of(&past) == RETRIAL_NOW && retrial_deadline_of(&far) == RETRIAL_FOREVER);
    CHECK(retrial_deadline_of(NULL) == RETRIAL_NOW);
    OK(retrial_mutex_release(one, mutex));
}

static void conversions(retrial_session *one, retrial_session *other) {
    OK(retrial_mutex_get(one, mutex, RETRIAL_S, RETRIAL_HERE));
    OK(retrial_mutex_get(one, mutex, RETRIAL_S, RETRIAL_HERE)); /* twice */
    ANSWERS(RETRIAL_DEADLOCK, retrial_mutex_examine(one, mutex, RETRIAL_FOREVER));
    OK(retrial_mutex_release(one, mutex));
    OK(retrial_mutex_get(other, mutex, RETRIAL_S, RETRIAL_HERE));
    OK(retrial_mutex_examine(one, mutex, RETRIAL_FOREVER));
    ANSWERS(RETRIAL_BUSY, retrial_mutex_upgrade(one, mutex, RETRIAL_NOW));
    OK(retrial_mutex_share(one, mutex));
    OK(retrial_mutex_release(other, mutex));
    OK(retrial_mutex_examine(one, mutex, RETRIAL_NOW));
    OK(retrial_mutex_upgrade(one, mutex, RETRIAL_FOREVER));
    ANSWERS(RETRIAL_BUSY, retrial_mutex_try(other, mutex, RETRIAL_S, RETRIAL_HERE));
    OK(retrial_mutex_share(one, mutex));
    OK(retrial_mutex_try(other, mutex, RETRIAL_S, RETRIAL_HERE));
    OK(retrial_mutex_release(other, mutex));
    OK(retrial_mutex_release(one, mutex));
}

static void parameters(void) {
    char text[64];
    OK(retrial_param_set(instance, NULL, "mutex_wait_scheme", "sleep"));
    OK(retrial_param_set(instance, NULL, "mutex_wait_time", "7ms"));
    OK(retrial_param_set(instance, "test", "mutex_wait_scheme", "ydb"));
    OK(retrial_param_get(instance, NULL, "mutex_wait_time", text, sizeof text));
    CHECK(strcmp(text, "7") == 0);
    OK(retrial_param_get(instance, NULL, "mutex_wait_scheme", text, sizeof text));
    CHECK(strcmp(text, "sleep") == 0);
    OK(retrial_param_get(instance, "test", "mutex_wait_scheme", text, sizeof text));
    CHECK(strcmp(text, "ydb") == 0);
    OK(retrial_param_set(instance, "test", "mutex_wait_scheme", NULL));
    OK(retrial_param_get(instance, "test", "mutex_wait_scheme", text, sizeof text));
    CHECK(strcmp(text, "sleep") == 0);
    OK(retrial_param_set(instance, NULL, "mutex_wait_scheme", NULL));
}

/* As many sessions one after the other as would not fit at a time. */
static void *opens(void *unused) {
    retrial_session *session;
    OK(retrial_session_open(instance, "short", &session));
    OK(retrial_session_set_action(session, "counts"));
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE));
    *data += 1;
    OK(retrial_mutex_release(session, mutex));
    return unused;
}

static void *ends_with_it(void *unused) {
    retrial_session *session;
    OK(retrial_session_open(instance, "ends", &session));
    OK(retrial_mutex_get(session, mutex, RETRIAL_X, RETRIAL_HERE));
    return unused;
}

static void threads(retrial_session *one) {
    pthread_t thread;
    for (int i = 0; i < 100; i++) {
        CHECK(pthread_create(&thread, NULL, opens, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    CHECK(*data == 100);
    CHECK(pthread_create(&thread, NULL, ends_with_it, NULL) == 0 && pthread_join(thread, NULL) == 0);
    ANSWERS(RETRIAL_OWNER_DIED, retrial_mutex_get(one, mutex, RETRIAL_S, RETRIAL_HERE));
    OK(retrial_mutex_release(one, mutex));
    ANSWERS(RETRIAL_OWNER_DIED, retrial_mutex_try(one, mutex, RETRIAL_LX, RETRIAL_HERE));
    OK(retrial_mutex_consistent(one, mutex));
    OK(retrial_mutex_release(one, mutex));
    OK(retrial_mutex_get(one, mutex, RETRIAL_X, RETRIAL_HERE));
    OK(retrial_mutex_release(one, mutex));
}

static uint64_t figure(const char *name) {
    uint64_t values[64];
    OK(retrial_mutex_figures(instance, mutex, values, sizeof values / sizeof *values));
    for (size_t i = 0;; i++) {
        CHECK(retrial_figure_name(i) != NULL);
        if (strcmp(retrial_figure_name(i), name) == 0) {
            return values[i];
        }
    }
}

static void figures(retrial_session *one, retrial_session *other) {
    const uint64_t gets = figure("gets"), gave_up = figure("gave_up"), wait_ns = figure("wait_ns");
    uint64_t number = 0, before = 0, at_ns = 0;
    char text[256], few[8];
    OK(retrial_mutex_get(one, mutex, RETRIAL_X, RETRIAL_HERE));
    ANSWERS(RETRIAL_TIMED_OUT,
            retrial_mutex_get_until(other, mutex, RETRIAL_S, retrial_deadline_ns(20 * 1000 * 1000), RETRIAL_HERE));
    OK(retrial_mutex_release(one, mutex));
    CHECK(figure("gets") == gets + 1 && figure("gave_up") == gave_up + 1);
    CHECK(figure("wait_ns") > wait_ns && figure("max_ns") > 0);
    ANSWERS(RETRIAL_INVALID, retrial_mutex_figures(instance, mutex, NULL, 1));
    ANSWERS(RETRIAL_INVALID, retrial_mutex_figures(NULL, mutex, &number, 1));
    /* A death is told there, among others. */
    while (retrial_alert_next(instance, &number, &at_ns, text, sizeof text) == RETRIAL_OK) {
        CHECK(number > before && at_ns > 0 && strlen(text) > 0);
        before = number;
    }
    CHECK(number > 0);
    ANSWERS(RETRIAL_NOT_FOUND, retrial_alert_next(instance, &number, NULL, text, sizeof text));
    number = 0;
    OK(retrial_alert_next(instance, &number, NULL, few, sizeof few));
    CHECK(strlen(few) == sizeof few - 1);
    ANSWERS(RETRIAL_INVALID, retrial_alert_next(instance, &number, NULL, NULL, 8));
    ANSWERS(RETRIAL_INVALID, retrial_alert_next(instance, NULL, NULL, few, sizeof few));
}

int main(void) {
    const retrial_capacity few = {.sessions = 4};
    retrial_session *one, *other;
    void *bytes;
    retrial_mutex *again;
    OK(retrial_instance_anonymous(&few, &instance));
    OK(retrial_session_open(instance, "one", &one));
    OK(retrial_session_open(instance, NULL, &other));
    OK(retrial_mutex_named(instance, "m", "test", sizeof *data, &mutex, &bytes));
    data = bytes;
    OK(retrial_mutex_named(instance, "m", "test", sizeof *data, &again, &bytes));
    CHECK(again == mutex && bytes == data && *data == 0);
    modes(one, other);
    deadlines(one, other);
    conversions(one, other);
    parameters();
    threads(one);
    figures(one, other);
    OK(retrial_session_close(other));
    OK(retrial_session_close(one));
    OK(retrial_instance_close(instance));
    return 0;
}
