/* retrial for C++17: handles that close themselves, guards that release. retrial.h says what each call does.
 *
 * Each call that can fail comes twice, as in std::filesystem: one throws retrial::error, the other takes
 * `int &code`, answers RETRIAL_OK or another code there, and throws nothing. With -fno-exceptions there are only
 * the latter. A get that is answered RETRIAL_OWNER_DIED holds the mutex. The form with a code gives the guard with
 * that code: check and repair the data, then call consistent(). The form that throws releases the mutex first: the
 * next get is told again.
 *
 * Sessions and guards are for the thread that opened the session. A guard must end before its session, a session
 * before its instance. Everything can be moved, nothing copied. */
#ifndef RETRIAL_HPP
#define RETRIAL_HPP

#include <chrono>
#include <exception>
#include <retrial.h>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#if defined __cpp_exceptions
#define RETRIAL_THROWS_ 1
#endif
#define RETRIAL_ALWAYS_ __attribute__((always_inline))

namespace retrial {

/* A code other than RETRIAL_OK, and why. */
class error : public std::runtime_error {
  public:
    explicit error(int code)
        : std::runtime_error(std::string(retrial_strerror(code)) + ": " + retrial_message()), code_(code) {}
    int code() const noexcept { return code_; }

  private:
    int code_;
};

enum class mode { s = RETRIAL_S, x = RETRIAL_X, lx = RETRIAL_LX, e = RETRIAL_E };

#ifdef RETRIAL_THROWS_
/* What `f` gives with a code, or the error. */
template <class F> auto throws_(F f) {
    int code;
    if constexpr (std::is_void_v<decltype(f(code))>) {
        if (f(code); code != RETRIAL_OK) {
            throw error(code);
        }
    } else {
        auto made = f(code);
        if (code != RETRIAL_OK) {
            throw error(code);
        }
        return made;
    }
}
#endif

/* When a call gives up. */
class deadline {
  public:
    constexpr deadline() noexcept = default; /* never */
    static constexpr deadline now() noexcept { return deadline(RETRIAL_NOW); } /* after one try */
    template <class Rep, class Period> static deadline in(std::chrono::duration<Rep, Period> time) noexcept {
        if (time <= time.zero()) {
            return now();
        }
        /* Beyond the range of ns: never. */
        if (std::chrono::duration<double>(time).count() >= 9e9) {
            return deadline();
        }
        const auto ns = std::chrono::ceil<std::chrono::nanoseconds>(time).count();
        return deadline(retrial_deadline_ns(static_cast<uint64_t>(ns)));
    }
    template <class Clock, class Duration>
    static deadline at(std::chrono::time_point<Clock, Duration> time) noexcept(noexcept(Clock::now())) {
        const auto now = Clock::now();
        return time <= now ? deadline::now() : in(time - now); /* the difference from a time long ago overflows */
    }
    constexpr uint64_t ns() const noexcept { return ns_; }

  private:
    constexpr explicit deadline(uint64_t ns) noexcept : ns_(ns) {}
    uint64_t ns_ = RETRIAL_FOREVER;
};

/* A handle that is closed once. */
template <class Handle, int (*Close)(Handle *)> class owned {
  public:
    owned() noexcept = default;
    owned(owned &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    owned &operator=(owned &&other) noexcept {
        if (this != &other) {
            close_quietly();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    ~owned() { close_quietly(); }
    /* Of C; NULL when there is none. */
    Handle *handle() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    /* Closes it now. When that is refused, as with RETRIAL_BUSY, it stays open; the destructor tries once more. */
    void close(int &code) noexcept {
        code = handle_ == nullptr ? RETRIAL_OK : Close(handle_);
        if (code == RETRIAL_OK) {
            handle_ = nullptr;
        }
    }
#ifdef RETRIAL_THROWS_
    void close() {
        throws_([this](int &code) { close(code); });
    }
#endif

  protected:
    void close_quietly() noexcept {
        int code;
        close(code);
    }
    Handle *handle_ = nullptr;
};

class instance : public owned<retrial_instance, retrial_instance_close> {
  public:
    static instance open(const char *address, int &code, const retrial_capacity *capacity = nullptr,
                         mode_t permissions = 0600) noexcept {
        instance made;
        code = retrial_instance_open(address, capacity, permissions, &made.handle_);
        return made;
    }
    static instance attach(const char *address, int &code) noexcept {
        instance made;
        code = retrial_instance_attach(address, &made.handle_);
        return made;
    }
    static instance anonymous(int &code, const retrial_capacity *capacity = nullptr) noexcept {
        instance made;
        code = retrial_instance_anonymous(capacity, &made.handle_);
        return made;
    }
#ifdef RETRIAL_THROWS_
    static instance open(const char *address, const retrial_capacity *capacity = nullptr, mode_t permissions = 0600) {
        return throws_([=](int &code) { return open(address, code, capacity, permissions); });
    }
    static instance attach(const char *address) {
        return throws_([=](int &code) { return attach(address, code); });
    }
    static instance anonymous(const retrial_capacity *capacity = nullptr) {
        return throws_([=](int &code) { return anonymous(code, capacity); });
    }
#endif
};

class session : public owned<retrial_session, retrial_session_close> {
  public:
    session() noexcept = default;
    session(const instance &of, const char *name, int &code) noexcept {
        code = retrial_session_open(of.handle(), name, &handle_);
    }
#ifdef RETRIAL_THROWS_
    explicit session(const instance &of, const char *name = nullptr) {
        throws_([&](int &code) { code = retrial_session_open(of.handle(), name, &handle_); });
    }
#endif
};

/* A mutex held in a mode; released when it ends. T is what it protects, void for one's own struct. In S and E the data
 * are const. */
template <class T, mode M> class [[nodiscard]] guard {
    static constexpr bool is_alone = M == mode::x || M == mode::lx;

  public:
    using data = std::conditional_t<is_alone, T, const T>;
    guard() noexcept = default;
    guard(guard &&other) noexcept { take(other); }
    guard &operator=(guard &&other) noexcept {
        if (this != &other) {
            release_quietly();
            take(other);
        }
        return *this;
    }
    RETRIAL_ALWAYS_ ~guard() { release_quietly(); }

    explicit operator bool() const noexcept { return mutex_ != nullptr; }
    /* What it protects: NULL behind an empty guard. */
    template <class U = data> std::add_lvalue_reference_t<U> operator*() const noexcept { return *data_; }
    data *operator->() const noexcept { return data_; }

    /* Releases now. */
    RETRIAL_ALWAYS_ void release(int &code) noexcept {
        code = mutex_ == nullptr ? RETRIAL_OK : retrial_mutex_release(session_, mutex_);
        mutex_ = nullptr;
        data_ = nullptr;
    }
    /* After RETRIAL_OWNER_DIED. */
    void consistent(int &code) noexcept {
        static_assert(M != mode::s, "a reader declares nothing consistent");
        code = retrial_mutex_consistent(session_, mutex_);
    }
    /* S to E. When it fails this guard holds the mutex as before, and the result is empty. */
    guard<T, mode::e> examine(int &code, deadline until = {}) && noexcept {
        static_assert(M == mode::s, "S becomes E");
        code = retrial_mutex_examine(session_, mutex_, until.ns());
        return converted<mode::e>(code);
    }
    /* E to X. */
    guard<T, mode::x> upgrade(int &code, deadline until = {}) && noexcept {
        static_assert(M == mode::e, "E becomes X");
        code = retrial_mutex_upgrade(session_, mutex_, until.ns());
        return converted<mode::x>(code);
    }
    /* X, LX or E to S. */
    guard<T, mode::s> share(int &code) && noexcept {
        static_assert(M != mode::s, "S is S already");
        code = retrial_mutex_share(session_, mutex_);
        return converted<mode::s>(code);
    }
#ifdef RETRIAL_THROWS_
    void release() { throws_([this](int &code) { release(code); }); }
    void consistent() { throws_([this](int &code) { consistent(code); }); }
    guard<T, mode::e> examine(deadline until = {}) && {
        return throws_([&](int &code) { return std::move(*this).examine(code, until); });
    }
    guard<T, mode::x> upgrade(deadline until = {}) && {
        return throws_([&](int &code) { return std::move(*this).upgrade(code, until); });
    }
    guard<T, mode::s> share() && {
        return throws_([&](int &code) { return std::move(*this).share(code); });
    }
#endif

    /* Gets it: what the mutexes below do. Empty unless the code is RETRIAL_OK or RETRIAL_OWNER_DIED. */
    RETRIAL_ALWAYS_ guard(const session &by, retrial_mutex *mutex, T *protects, deadline until, retrial_location *at,
                          int &code) noexcept
        : session_(by.handle()) {
        code = retrial_mutex_get_until(session_, mutex, static_cast<int>(M), until.ns(), at);
        if (code == RETRIAL_OK || code == RETRIAL_OWNER_DIED) {
            mutex_ = mutex;
            data_ = protects;
        }
    }

  private:
    template <class, mode> friend class guard;
    friend class condition; /* retrial_cond.hpp */
    template <mode N> void take(guard<T, N> &other) noexcept {
        session_ = other.session_;
        mutex_ = std::exchange(other.mutex_, nullptr);
        data_ = std::exchange(other.data_, nullptr);
    }
    template <mode N> guard<T, N> converted(int code) noexcept {
        guard<T, N> made;
        if (code == RETRIAL_OK) {
            made.take(*this);
        }
        return made;
    }
    RETRIAL_ALWAYS_ void release_quietly() noexcept {
        int code;
        release(code);
    }
    retrial_session *session_ = nullptr;
    retrial_mutex *mutex_ = nullptr;
    T *data_ = nullptr;
};

/* The gets of a mutex, which `Of` has by `raw()`, with the data that it has by `data()`. */
template <class Of, class T> class gets {
  public:
    template <mode M>
    RETRIAL_ALWAYS_ guard<T, M> get(const session &by, int &code, deadline until = {},
                                    retrial_location *at = nullptr) {
        Of &of = static_cast<Of &>(*this);
        return guard<T, M>(by, of.raw(), of.data(), until, at, code);
    }
    RETRIAL_ALWAYS_ guard<T, mode::x> x(const session &by, int &code, deadline until = {},
                                        retrial_location *at = nullptr) {
        return get<mode::x>(by, code, until, at);
    }
#ifdef RETRIAL_THROWS_
    template <mode M>
    RETRIAL_ALWAYS_ guard<T, M> get(const session &by, deadline until = {}, retrial_location *at = nullptr) {
        int code;
        auto made = get<M>(by, code, until, at);
        if (__builtin_expect(code != RETRIAL_OK, 0)) {
            const error why(code); /* before the release, which may have a message of its own */
            made = {};
            throw why;
        }
        return made;
    }
    guard<T, mode::x> x(const session &by, deadline until = {}, retrial_location *at = nullptr) {
        return get<mode::x>(by, until, at);
    }
    guard<T, mode::s> s(const session &by, deadline until = {}, retrial_location *at = nullptr) {
        return get<mode::s>(by, until, at);
    }
    guard<T, mode::lx> lx(const session &by, deadline until = {}, retrial_location *at = nullptr) {
        return get<mode::lx>(by, until, at);
    }
    guard<T, mode::e> e(const session &by, deadline until = {}, retrial_location *at = nullptr) {
        return get<mode::e>(by, until, at);
    }
#endif
};

/* A named mutex and its T in the instance's memory, all bytes 0 when it is new. Valid while the instance is open. */
template <class T> class mutex : public gets<mutex<T>, T> {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 16, "T lies in memory that processes share");

  public:
    mutex(const instance &of, const char *name, const char *type, int &code) noexcept {
        void *data = nullptr;
        code = retrial_mutex_named(of.handle(), name, type, sizeof(T), &raw_, &data);
        data_ = static_cast<T *>(data);
    }
#ifdef RETRIAL_THROWS_
    mutex(const instance &of, const char *name, const char *type) {
        *this = throws_([=, &of](int &code) { return mutex(of, name, type, code); });
    }
#endif
    mutex(mutex &&) noexcept = default;
    mutex &operator=(mutex &&) noexcept = default;
    retrial_mutex *raw() const noexcept { return raw_; }
    T *data() const noexcept { return data_; }

  private:
    retrial_mutex *raw_ = nullptr;
    T *data_ = nullptr;
};

/* A mutex for a struct of your own in memory that processes share: 48 bytes, all 0 at first. Stays where it is. Not
 * destroyed with the object: other processes may use it. */
class own_mutex : public gets<own_mutex, void> {
  public:
    constexpr own_mutex() noexcept = default;
    own_mutex(const own_mutex &) = delete;
    own_mutex &operator=(const own_mutex &) = delete;
    void init(const instance &of, const char *type, const char *name, int &code) noexcept {
        code = retrial_mutex_init(of.handle(), &raw_, type, name);
    }
    void destroy(const instance &of, int &code) noexcept { code = retrial_mutex_destroy(of.handle(), &raw_); }
    retrial_mutex *raw() noexcept { return &raw_; }
    void *data() const noexcept { return nullptr; }

  private:
    retrial_mutex raw_ = RETRIAL_MUTEX_INIT;
};

static_assert(sizeof(own_mutex) == sizeof(retrial_mutex) && std::is_standard_layout_v<own_mutex>);

/* A mutex as one session uses it, for std::unique_lock, std::shared_lock and std::scoped_lock: X, and S for the calls
 * with `shared`. A get that fails, also with RETRIAL_OWNER_DIED, throws and does not hold the mutex; without exceptions
 * it ends the program. try_lock and its family are false where the mutex is busy or the time is over. */
class lockable {
  public:
    template <class Mutex>
    lockable(const session &by, Mutex &mutex, retrial_location *at = nullptr) noexcept
        : session_(by.handle()), mutex_(mutex.raw()), at_(at) {}
    lockable(const lockable &) = delete;
    lockable &operator=(const lockable &) = delete;

    void lock() { get(RETRIAL_X, {}); }
    bool try_lock() { return get(RETRIAL_X, deadline::now()); }
    template <class D> bool try_lock_for(const D &time) { return get(RETRIAL_X, deadline::in(time)); }
    template <class P> bool try_lock_until(const P &time) { return get(RETRIAL_X, deadline::at(time)); }
    void unlock() noexcept { retrial_mutex_release(session_, mutex_); }
    void lock_shared() { get(RETRIAL_S, {}); }
    bool try_lock_shared() { return get(RETRIAL_S, deadline::now()); }
    template <class D> bool try_lock_shared_for(const D &time) { return get(RETRIAL_S, deadline::in(time)); }
    template <class P> bool try_lock_shared_until(const P &time) { return get(RETRIAL_S, deadline::at(time)); }
    void unlock_shared() noexcept { unlock(); }

  private:
    bool get(int mode, deadline until) {
        const int code = retrial_mutex_get_until(session_, mutex_, mode, until.ns(), at_);
        if (code == RETRIAL_OK) {
            return true;
        }
        if (code == RETRIAL_BUSY || code == RETRIAL_TIMED_OUT) {
            return false;
        }
#ifdef RETRIAL_THROWS_
        const error why(code);
#endif
        if (code == RETRIAL_OWNER_DIED) {
            unlock();
        }
#ifdef RETRIAL_THROWS_
        throw why;
#else
        std::terminate();
#endif
    }
    retrial_session *session_;
    retrial_mutex *mutex_;
    retrial_location *at_;
};

} // namespace retrial

#endif
