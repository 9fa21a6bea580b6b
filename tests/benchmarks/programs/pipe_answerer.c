/* Answers each line on stdin with one line of a fixed size on stdout.
 * Usage: pipe_answerer ANSWER_BYTES */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char request[1 << 16];
    if (argc != 2)
        return 64;
    size_t answer_bytes = strtoul(argv[1], NULL, 10);
    char *answer = malloc(answer_bytes);
    ssize_t got;
    if (answer == NULL)
        return 71;
    memset(answer, 'x', answer_bytes);
    answer[answer_bytes - 1] = '\n';
    while ((got = read(0, request, sizeof request)) > 0)
        for (ssize_t i = 0; i < got; i++)
            if (request[i] == '\n')
                for (size_t done = 0; done < answer_bytes;) {
                    ssize_t n = write(1, answer + done, answer_bytes - done);
                    if (n <= 0)
                        return 74;
                    done += (size_t)n;
                }
    return 0;
}
