/* Asks over stdout and times until the answer is on stdin: the floor of any two processes.
 * Usage: pipe_asker REQUEST_BYTES ANSWER_BYTES CONTROL_IN CONTROL_OUT */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int put(int to, const char *data, size_t left) {
    while (left > 0) {
        ssize_t n = write(to, data, left);
        if (n <= 0)
            return -1;
        data += n;
        left -= (size_t)n;
    }
    return 0;
}

static int take(int from, char *data, size_t left) {
    while (left > 0) {
        ssize_t n = read(from, data, left);
        if (n <= 0)
            return -1;
        data += n;
        left -= (size_t)n;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 64;
    size_t request_bytes = strtoul(argv[1], NULL, 10), answer_bytes = strtoul(argv[2], NULL, 10);
    int orders = atoi(argv[3]), durations = atoi(argv[4]);
    char *request = malloc(request_bytes), *answer = malloc(answer_bytes);
    uint64_t samples;
    if (request == NULL || answer == NULL)
        return 71;
    memset(request, 'x', request_bytes);
    request[request_bytes - 1] = '\n';
    while (take(orders, (char *)&samples, sizeof samples) == 0)
        for (; samples > 0; samples--) {
            int64_t start = now();
            if (put(1, request, request_bytes) != 0 || take(0, answer, answer_bytes) != 0)
                return 74;
            int64_t duration = now() - start;
            if (answer[answer_bytes - 1] != '\n')
                return 76;
            if (put(durations, (char *)&duration, sizeof duration) != 0)
                return 74;
        }
    return 0;
}
