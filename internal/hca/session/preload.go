package session

import (
	"slices"
	"strings"
)

// preloaded returns an environment in which the dynamic linker loads a library into each program. It comes after
// those that the user loads.
//
// The runtime of gcc's address sanitizer refuses to start if another library comes before it, because that library
// could replace functions that it replaces itself. libsoftmkey-run.so replaces none of these, so the check is off.
func preloaded(env []string, library string) []string {
	env = extended(env, "LD_PRELOAD", " ", library)
	return extended(env, "ASAN_OPTIONS", ":", "verify_asan_link_order=0")
}

// extended appends a value to a variable with a list of values. Programs see the first of several variables of a
// name, so the others go.
func extended(env []string, name, separator, value string) []string {
	is := func(v string) bool { return strings.HasPrefix(v, name+"=") }
	if i := slices.IndexFunc(env, is); i >= 0 && env[i] != name+"=" {
		value = env[i][len(name)+1:] + separator + value
	}
	return append(slices.DeleteFunc(env, is), name+"="+value)
}
