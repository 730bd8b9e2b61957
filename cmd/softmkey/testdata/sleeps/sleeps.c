/*
 * Polls an empty completion queue, while a child stops this process for some milliseconds, again and again, as a
 * machine with other work does. Says whether the polls sleep after that.
 */
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long sleeps(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return u.ru_nvcsw;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = n > 0 ? ibv_open_device(list[0]) : NULL;
	struct ibv_cq *cq = c ? ibv_create_cq(c, 16, NULL, NULL, 0) : NULL;
	struct ibv_wc wc;

	if (!cq) {
		puts("no device");
		return 1;
	}
	for (int round = 0; round < 5; round++) {
		pid_t parent = getpid(), child = fork();
		if (child == 0) {
			for (int i = 0; i < 4; i++) {
				usleep(10000);
				kill(parent, SIGSTOP);
				usleep(5000);
				kill(parent, SIGCONT);
			}
			_exit(0);
		}
		while (waitpid(child, NULL, WNOHANG) == 0)
			for (int i = 0; i < 1000; i++)
				if (ibv_poll_cq(cq, 1, &wc) != 0)
					return 1;
		long before = sleeps();
		for (double end = now() + 0.2; now() < end;)
			ibv_poll_cq(cq, 1, &wc);
		if (sleeps() - before > 10) {
			puts("it sleeps");
			return 0;
		}
	}
	puts("it does not sleep");
	return 0;
}
