/* A program that uses plugins one after the other: FLAGS FILE ..., with the flags of dlopen and two more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int n, char **v)
{
	for (int i = 1; i + 1 < n; i += 2) {
		int flags = RTLD_NOW | (strchr(v[i], 'g') ? RTLD_GLOBAL : 0);
#ifdef RTLD_DEEPBIND
		flags |= strchr(v[i], 'd') ? RTLD_DEEPBIND : 0;
#endif
		void *h = dlopen(v[i + 1], flags);
		if (!h) {
			puts(dlerror());
			return 1;
		}
		if (strchr(v[i], 't')) { /* the calls of these functions are jumps, so that the library sees this program's addresses */
			void **(*opens)(void *) = (void **(*)(void *))dlsym(h, "opens");
			int (*closes)(void *) = (int (*)(void *))dlsym(h, "closes");
			void **c = opens("");
			int closed = closes(c);
			printf("%ld opens, %d closes\n", c ? (long)*c : -1, closed);
		} else
			((int (*)(void))dlsym(h, "use"))();
		if (strchr(v[i], 'c'))
			dlclose(h);
	}
	return 0;
}
