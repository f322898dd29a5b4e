// Completion: a host function in the stream queues a token and makes an eventfd readable.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime.hpp"

namespace millrace {

namespace {

constexpr uint32_t kMostCompletions = 1u << 20;

// Queues a token. It runs on a thread of the driver, which waits for its return. It must not call CUDA.
void CUDART_CB reached(void *argument) {
    Notification *notification = static_cast<Notification *>(argument);
    Completions *queue = notification->queue;
    pthread_mutex_lock(&queue->mutex);
    queue->tokens[(queue->head + queue->queued) % queue->capacity] = notification->token;
    queue->queued++;
    notification->next_free = queue->free;
    queue->free = static_cast<uint32_t>(notification - queue->notifications);
    pthread_mutex_unlock(&queue->mutex);
    // The counter overflows only after 2^64 - 2 unread signals, so the only possible error is an interruption.
    uint64_t one = 1;
    while (write(queue->fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

// Takes a free notification, or returns nullptr if the maximum number is outstanding.
Notification *take(Completions *queue, uint64_t token) {
    Notification *notification = nullptr;
    pthread_mutex_lock(&queue->mutex);
    if (queue->outstanding < queue->capacity) {
        notification = &queue->notifications[queue->free];
        queue->free = notification->next_free;
        queue->outstanding++;
        notification->token = token;
    }
    pthread_mutex_unlock(&queue->mutex);
    return notification;
}

void give_back(Completions *queue, Notification *notification) {
    pthread_mutex_lock(&queue->mutex);
    notification->next_free = queue->free;
    queue->free = static_cast<uint32_t>(notification - queue->notifications);
    queue->outstanding--;
    pthread_mutex_unlock(&queue->mutex);
}

} // namespace

int32_t completions_open(Completions *queue, uint32_t capacity, millrace_error *error) {
    if (capacity == 0 || capacity > kMostCompletions) {
        return fail(error, MILLRACE_INVALID, 0, "%u completions: give 1 to %u", capacity, kMostCompletions);
    }
    queue->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (queue->fd < 0) return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "eventfd: %s", strerror(errno));
    queue->notifications = static_cast<Notification *>(calloc(capacity, sizeof *queue->notifications));
    queue->tokens = static_cast<uint64_t *>(calloc(capacity, sizeof *queue->tokens));
    if (queue->notifications == nullptr || queue->tokens == nullptr) {
        return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "no host memory for %u completions", capacity);
    }
    pthread_mutex_init(&queue->mutex, nullptr);
    queue->capacity = capacity;
    for (uint32_t i = 0; i < capacity; i++) {
        queue->notifications[i].queue = queue;
        queue->notifications[i].next_free = i + 1;
    }
    return MILLRACE_OK;
}

void completions_close(Completions *queue) {
    if (queue->capacity != 0) pthread_mutex_destroy(&queue->mutex);
    free(queue->notifications);
    free(queue->tokens);
    if (queue->fd >= 0) close(queue->fd);
}

int32_t notify(millrace_stream *stream, uint64_t token, millrace_error *error) {
    if (int32_t s = use(stream->device, error)) return s;
    Completions *queue = &stream->device->completions;
    Notification *notification = take(queue, token);
    if (notification == nullptr) {
        return fail(error, MILLRACE_OUT_OF_MEMORY, 0, "%u notifications are outstanding, which is the maximum: drain some",
                    queue->capacity);
    }
    if (int32_t s = check(error, cudaLaunchHostFunc(stream->stream, reached, notification), "cudaLaunchHostFunc")) {
        give_back(queue, notification);
        return s;
    }
    return MILLRACE_OK;
}

int32_t completion_fd(millrace_device *device) { return device->completions.fd; }

uint32_t completion_drain(millrace_device *device, uint64_t *tokens, uint32_t room) {
    Completions *queue = &device->completions;
    pthread_mutex_lock(&queue->mutex);
    uint32_t n = queue->queued < room ? queue->queued : room;
    for (uint32_t i = 0; i < n; i++) tokens[i] = queue->tokens[(queue->head + i) % queue->capacity];
    queue->head = (queue->head + n) % queue->capacity;
    queue->queued -= n;
    queue->outstanding -= n;
    pthread_mutex_unlock(&queue->mutex);
    return n;
}

} // namespace millrace
