// The settings of the fake runtime, and their effects.
#include "control.hpp"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <mutex>

namespace {

constexpr size_t kFileBytes = 4096;

std::mutex mutex;
const volatile uint64_t *file; // nullptr without MILLRACE_FAKE_CUDA
uint64_t serial;
FakeSettings now;
int calls;         // number of calls of now.call
bool sick, hanging;

void defaults() {
    now = FakeSettings();
    now.from = now.pools = now.limits = 1;
    now.driver = 13000, now.gpus = 2, now.threads = 1024;
    now.compute[0] = now.compute[1] = 90;
}

void set_compute(char *list) {
    now.gpus = 0;
    char *rest = nullptr;
    for (char *one = strtok_r(list, ",", &rest); one != nullptr && now.gpus < 8; one = strtok_r(nullptr, ",", &rest)) {
        now.compute[now.gpus++] = atoi(one);
    }
}

void set(const char *name, char *value) {
    if (!strcmp(name, "call")) snprintf(now.call, sizeof now.call, "%s", value);
    else if (!strcmp(name, "missing")) snprintf(now.missing, sizeof now.missing, "%s", value);
    else if (!strcmp(name, "trace")) snprintf(now.trace, sizeof now.trace, "%s", value);
    else if (!strcmp(name, "threads")) now.threads = atoi(value);
    else if (!strcmp(name, "code")) now.code = atoi(value);
    else if (!strcmp(name, "from")) now.from = atoi(value);
    else if (!strcmp(name, "pools")) now.pools = atoi(value);
    else if (!strcmp(name, "limits")) now.limits = atoi(value);
    else if (!strcmp(name, "answer")) now.mute = atoi(value);
    else if (!strcmp(name, "tell")) now.tell = atoi(value);
    else if (!strcmp(name, "driver")) now.driver = atoi(value);
    else if (!strcmp(name, "compute")) set_compute(value);
    else if (!strcmp(name, "how")) {
        now.how = !strcmp(value, "always") ? FakeSettings::always : !strcmp(value, "device") ? FakeSettings::device
            : !strcmp(value, "hang") ? FakeSettings::hang : FakeSettings::once;
    } else {
        fprintf(stderr, "the fake CUDA runtime knows no setting %s\n", name);
        abort();
    }
}

void map_file() {
    static bool tried = false;
    if (tried) return;
    tried = true;
    defaults();
    const char *path = getenv("MILLRACE_FAKE_CUDA");
    if (path == nullptr) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *memory = fd < 0 ? MAP_FAILED : mmap(nullptr, kFileBytes, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (memory == MAP_FAILED) {
        perror(path);
        abort();
    }
    file = static_cast<const volatile uint64_t *>(memory);
}

void read_settings() {
    map_file();
    if (file == nullptr || *file == serial) return;
    serial = *file;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    char text[kFileBytes] = {};
    memcpy(text, const_cast<const uint64_t *>(file + 1), kFileBytes - sizeof *file - 1);
    defaults();
    calls = 0, sick = hanging = false;
    char *rest = nullptr;
    for (char *word = strtok_r(text, " ", &rest); word != nullptr; word = strtok_r(nullptr, " ", &rest)) {
        char *value = strchr(word, '=');
        if (value == nullptr) continue;
        *value = 0;
        set(word, value + 1);
    }
}

} // namespace

int fake_enter(const char *function, FakeSettings *settings) {
    std::lock_guard<std::mutex> guard(mutex);
    read_settings();
    if (settings != nullptr) *settings = now;
    if (sick) return now.code;
    if (strcmp(function, now.call) != 0) return 0;
    calls++;
    if (calls < now.from || (now.how == FakeSettings::once && calls > now.from)) return 0;
    if (calls == now.from && now.tell) fprintf(stderr, "fake CUDA: %s fails with %d\n", function, now.code);
    if (now.how == FakeSettings::hang) {
        hanging = true;
        return 0;
    }
    sick = now.how == FakeSettings::device;
    return now.code;
}

bool fake_hangs() {
    std::lock_guard<std::mutex> guard(mutex);
    read_settings();
    return hanging;
}

void fake_wait() {
    timespec nap = {0, 1000 * 1000};
    while (fake_hangs()) (void)nanosleep(&nap, nullptr);
}
