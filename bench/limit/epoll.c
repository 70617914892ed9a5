// The least that a server on this kernel can do: one thread, one epoll set, a fixed answer, and no parsing but for the end of
// each head. What it takes per request is what the kernel takes; cmd/compare measures the others against it.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 256
#define BUFFER (64 << 10)

static char in[BUFFER + 1], out[BUFFER];
static char answer[512], last[512]; // last says that the connection ends
static size_t answer_size, last_size;
static time_t answer_second;

// The Date is made once a second, as the others do.
static void make_answer(void) {
	time_t now = time(NULL);
	if (now == answer_second)
		return;
	answer_second = now;
	char date[64];
	strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&now));
	const char *form = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nServer: bench\r\nDate: %s\r\n"
		"Content-Length: 13\r\n%s\r\nHello, World!";
	answer_size = snprintf(answer, sizeof answer, form, date, "");
	last_size = snprintf(last, sizeof last, form, date, "Connection: close\r\n");
}

// serve answers every head in what has come. A head that is cut waits for nothing: its end alone counts.
static void serve(int fd) {
	ssize_t n = read(fd, in, BUFFER);
	if (n <= 0) {
		if (n == 0 || errno != EAGAIN)
			close(fd);
		return;
	}
	in[n] = 0;
	if (strstr(in, "Connection: close") != NULL) {
		if (write(fd, last, last_size) < 0)
			perror("limit");
		close(fd);
		return;
	}
	size_t size = 0;
	for (char *p = in; (p = strstr(p, "\r\n\r\n")) != NULL; p += 4) {
		memcpy(out + size, answer, answer_size);
		size += answer_size;
		if (size + sizeof answer > BUFFER)
			break;
	}
	if (write(fd, out, size) < 0)
		close(fd);
}

int main(int argc, char **argv) {
	const char *address = "127.0.0.1:0";
	for (int i = 1; i + 1 < argc; i += 2)
		if (strcmp(argv[i], "-addr") == 0)
			address = argv[i + 1];
	char host[64];
	int port = 0, one = 1;
	if (sscanf(address, "%63[^:]:%d", host, &port) != 2)
		return fprintf(stderr, "limit: -addr is ADDRESS:PORT\n"), 2;
	struct sockaddr_in bound = {.sin_family = AF_INET, .sin_port = htons(port)};
	socklen_t length = sizeof bound;
	inet_pton(AF_INET, host, &bound.sin_addr);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&bound, sizeof bound) < 0 || listen(listener, 4096) < 0)
		return perror("limit"), 1;
	getsockname(listener, (struct sockaddr *)&bound, &length);
	printf("listening on http://%s:%d\n", host, ntohs(bound.sin_port));
	fflush(stdout);

	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	int set = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS];
	epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
	for (;;) {
		int n = epoll_wait(set, events, EVENTS, -1);
		make_answer();
		for (int i = 0; i < n; i++) {
			if (events[i].data.fd != listener) {
				serve(events[i].data.fd);
				continue;
			}
			int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
			if (fd < 0)
				continue;
			struct epoll_event added = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
			epoll_ctl(set, EPOLL_CTL_ADD, fd, &added);
		}
	}
}
