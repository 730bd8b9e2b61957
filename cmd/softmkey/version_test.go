package main

import (
	"strings"
	"testing"
)

// TestVersionRelease checks that a released binary prints the version and the commit that the
// linker has set, once.
func TestVersionRelease(t *testing.T) {
	defer func(r string) { release = r }(release)
	release = "v0.1.0 0123456789ab"
	if line := versionLine(); !strings.HasPrefix(line, "softmkey v0.1.0 0123456789ab go1.") || strings.Count(line, "0123456789ab") != 1 {
		t.Error(line)
	}
}
