// Command tiers prints the tiers of this architecture for scripts that run tests at each
// of them: a name a line, with yes or no for whether this machine can run it.
package main

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

func main() {
	for _, t := range cpu.All(runtime.GOARCH) {
		here := "no"
		if slices.Contains(cpu.Available(), t) {
			here = "yes"
		}
		fmt.Println(t, here)
	}
}
