/* A check that says what was answered instead. */
#ifndef CHECK_H
#define CHECK_H

#include <retrial.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s; last message: %s\n", __FILE__, __LINE__, #condition, retrial_message()); \
            exit(1); \
        } \
    } while (0)

#define ANSWERS(code, call) \
    do { \
        int answered_ = (call); \
        if (answered_ != (code)) { \
            fprintf(stderr, "%s:%d: %s answered %d (%s: %s), expected %d (%s)\n", __FILE__, __LINE__, #call, answered_, \
                    retrial_strerror(answered_), retrial_message(), code, retrial_strerror(code)); \
            exit(1); \
        } \
    } while (0)

#define OK(call) ANSWERS(RETRIAL_OK, call)

#endif
