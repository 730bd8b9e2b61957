package main

import (
	"strings"
	"testing"
)

// TestVersionRelease: a released binary gives the version and the commit that the linker set, once.
func TestVersionRelease(t *testing.T) {
	defer func(r string) { release = r }(release)
	release = "v0.1.0 0123456789ab"
	if line := versionLine(); !strings.HasPrefix(line, "softmkey v0.1.0 0123456789ab go1.") || strings.Count(line, "0123456789ab") != 1 {
		t.Error(line)
	}
}
