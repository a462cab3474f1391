/* The test server: an OpenAI-compatible server whose tokens come by a timetable, and /stats; no TLS.
 *
 *     cc -O2 -o local_test_server test_server.c && ./local_test_server ADDRESS PORT TTFT_MS ITL_MS    (port 0: any; the port is printed)
 *
 * It ends when its standard input, a pipe, is closed: whoever started it need not be there to end it.
 * A stream's next token is an entry of a binary heap ordered by when it is due; epoll sleeps until the first of them.
 * Lateness is when a token was handed to the kernel minus when it was due.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define INPUT_TOKENS 128
#define READY 256
#define LATEST 4194304

typedef struct {
    int socket, tokens_left, tokens, chat, place; /* place: index in the heap, -1 when nothing is due */
    int64_t due;
    size_t held, room, unsent, unsent_room;
    char *in, *out;
} stream;

static int64_t ttft = 50000000, itl = 20000000;
static int poll_fd;
static stream **heap;
static int due_count, heap_room;
static float *late;
static size_t late_count;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void put_at(int place, stream *s) { heap[place] = s; s->place = place; }

static void settle(int place) {
    stream *s = heap[place];
    while (place > 0 && heap[(place - 1) / 2]->due > s->due) {
        put_at(place, heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        int child = 2 * place + 1;
        if (child >= due_count) break;
        if (child + 1 < due_count && heap[child + 1]->due < heap[child]->due) child++;
        if (heap[child]->due >= s->due) break;
        put_at(place, heap[child]);
        place = child;
    }
    put_at(place, s);
}

static void make_due(stream *s, int64_t due) {
    s->due = due;
    if (s->place >= 0) { settle(s->place); return; }
    if (due_count == heap_room) {
        heap_room = heap_room ? 2 * heap_room : 256;
        heap = realloc(heap, heap_room * sizeof *heap);
    }
    put_at(due_count++, s);
    settle(s->place);
}

static void forget(stream *s) {
    int place = s->place;
    if (place < 0) return;
    stream *last = heap[--due_count];
    s->place = -1;
    if (last != s) { put_at(place, last); settle(place); }
}

static void hang_up(stream *s) {
    forget(s);
    close(s->socket);
    free(s->in);
    free(s->out);
    free(s);
}

static void watch(stream *s) {
    struct epoll_event e = {EPOLLIN | (s->unsent ? EPOLLOUT : 0), {.ptr = s}};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, s->socket, &e);
}

static void say(stream *s, const char *text, size_t size) {
    ssize_t sent = s->unsent ? 0 : send(s->socket, text, size, MSG_NOSIGNAL);
    if (sent < 0) sent = 0;
    if ((size_t)sent == size) return;
    size -= sent;
    if (s->unsent + size > s->unsent_room) {
        s->unsent_room = 2 * (s->unsent + size);
        s->out = realloc(s->out, s->unsent_room);
    }
    memcpy(s->out + s->unsent, text + sent, size);
    s->unsent += size;
    watch(s);
}

static int chunk(char *to, const char *body, int size) { return sprintf(to, "%x\r\n%s\r\n", size, body); }

static void token(stream *s) {
    char body[640], wire[2048];
    int last = --s->tokens_left == 0, size;
    const char *reason = last ? "\"length\"" : "null";
    if (s->chat)
        size = sprintf(body, "data: {\"id\":\"timetable-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"timetable\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" tok\"},\"logprobs\":null,\"finish_reason\":%s}]}\n\n", reason);
    else
        size = sprintf(body, "data: {\"id\":\"timetable-0123456789abcdef\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"timetable\",\"choices\":[{\"index\":0,\"text\":\" tok\",\"logprobs\":null,\"finish_reason\":%s}]}\n\n", reason);
    int written = chunk(wire, body, size);
    if (last) {
        size = sprintf(body, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\n", INPUT_TOKENS, s->tokens, INPUT_TOKENS + s->tokens);
        written += chunk(wire + written, body, size);
        written += sprintf(wire + written, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    }
    say(s, wire, written);
    if (late_count < LATEST) late[late_count++] = (now() - s->due) / 1e9f;
    if (last) forget(s);
    else make_due(s, s->due + itl);
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void reply(stream *s, const char *status, const char *body) {
    char wire[1024];
    int size = snprintf(wire, sizeof wire, "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", status, strlen(body), body);
    say(s, wire, size);
}

static void stats(stream *s) {
    char body[320];
    double sum = 0;
    size_t n = late_count;
    qsort(late, n, sizeof *late, by_value);
    for (size_t i = 0; i < n; i++) sum += late[i];
    sprintf(body, "{\"ttft_s\": %.9f, \"itl_s\": %.9f, \"tokens\": %zu, \"mean_s\": %.9f, \"p50_s\": %.9f, \"p99_s\": %.9f, \"max_s\": %.9f}",
            ttft / 1e9, itl / 1e9, n,
            n ? sum / n : 0, n ? late[n / 2] : 0, n ? late[(size_t)(n * 0.99)] : 0, n ? late[n - 1] : 0);
    late_count = 0;
    reply(s, "200 OK", body);
}

static void answer(stream *s, const char *head, const char *body) {
    if (strncmp(head, "POST /v1/completions ", 21) && strncmp(head, "POST /v1/chat/completions ", 26)) {
        if (strncmp(head, "GET /stats", 10)) reply(s, "404 Not Found", "{}");
        else stats(s);
        return;
    }
    static const char ok[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    const char *asked = strstr(body, "\"max_tokens\":");
    s->chat = head[9] == 'h';
    s->tokens = asked ? atoi(asked + 13) : 16;
    if (s->tokens < 1) s->tokens = 1;
    s->tokens_left = s->tokens;
    int64_t read_at = now();
    say(s, ok, sizeof ok - 1);
    make_due(s, read_at + ttft);
}

static void hear(stream *s) {
    for (;;) {
        if (s->held + 65537 > s->room) {
            s->room = s->room ? 2 * s->room : 131072;
            s->in = realloc(s->in, s->room);
        }
        ssize_t got = recv(s->socket, s->in + s->held, s->room - s->held - 1, 0);
        if (got > 0) { s->held += got; continue; }
        if (got < 0 && errno == EAGAIN) break;
        hang_up(s);
        return;
    }
    while (s->place < 0) {
        s->in[s->held] = 0;
        char *blank = memmem(s->in, s->held, "\r\n\r\n", 4);
        if (!blank) return;
        size_t head = blank - s->in + 4, length = 0;
        *blank = 0;
        char *field = strcasestr(s->in, "\ncontent-length:");
        if (field) length = strtoul(field + 16, NULL, 10);
        *blank = '\r';
        if (s->held < head + length) return;
        char kept = s->in[head + length];
        s->in[head + length] = 0;
        answer(s, s->in, s->in + head);
        s->in[head + length] = kept;
        s->held -= head + length;
        memmove(s->in, s->in + head + length, s->held);
    }
}

static void flush_out(stream *s) {
    ssize_t sent = send(s->socket, s->out, s->unsent, MSG_NOSIGNAL);
    if (sent <= 0) return;
    s->unsent -= sent;
    memmove(s->out, s->out + sent, s->unsent);
    if (!s->unsent) watch(s);
}

int main(int count, char **given) {
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    if (count != 5 || !inet_aton(given[1], &address.sin_addr)) {
        fprintf(stderr, "usage: timetable ADDRESS PORT TTFT_MS ITL_MS\n");
        return 2;
    }
    address.sin_port = htons(atoi(given[2]));
    ttft = atof(given[3]) * 1e6;
    itl = atof(given[4]) * 1e6;
    late = malloc(LATEST * sizeof *late);
    signal(SIGPIPE, SIG_IGN);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 4096)) { perror("timetable"); return 1; }
    getsockname(listener, (void *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event joined = {EPOLLIN, {.ptr = NULL}}, ready[READY];
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &joined);
    /* What cannot be waited for (a file, /dev/null) is refused here, and then nobody's end is this server's. */
    struct epoll_event owner = {EPOLLIN, {.ptr = &poll_fd}};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &owner);
    for (;;) {
        struct timespec wait, *until = NULL;
        if (due_count) {
            int64_t left = heap[0]->due - now();
            if (left < 0) left = 0;
            wait = (struct timespec){left / 1000000000, left % 1000000000};
            until = &wait;
        }
        int n = epoll_pwait2(poll_fd, ready, READY, until, NULL);
        for (int i = 0; i < n; i++) {
            stream *s = ready[i].data.ptr;
            if (ready[i].data.ptr == &poll_fd) {
                char word[64];
                if (read(STDIN_FILENO, word, sizeof word) <= 0) return 0;
                continue;
            }
            if (s) {
                if (ready[i].events & EPOLLOUT && s->unsent) flush_out(s);
                if (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) hear(s);
                continue;
            }
            int guest;
            while ((guest = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                setsockopt(guest, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                s = calloc(1, sizeof *s);
                s->socket = guest;
                s->place = -1;
                struct epoll_event e = {EPOLLIN, {.ptr = s}};
                epoll_ctl(poll_fd, EPOLL_CTL_ADD, guest, &e);
            }
        }
        for (int64_t t = now(); due_count && heap[0]->due <= t;) token(heap[0]);
    }
}
