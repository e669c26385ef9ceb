// A check that says what was answered instead. The twin of `tests/c/check.h`.
#ifndef CHECK_HPP
#define CHECK_HPP

#include <cstdio>
#include <cstdlib>
#include <retrial.h>

inline void check(bool is_so, const char *text, int line) {
    if (!is_so) {
        std::fprintf(stderr, "line %d: not so: %s; %s\n", line, text, retrial_message());
        std::exit(1);
    }
}

#define CHECK(...) check((__VA_ARGS__), #__VA_ARGS__, __LINE__)

#endif
