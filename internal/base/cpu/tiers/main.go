// Command tiers prints the tiers of this architecture, for scripts that run tests at each
// of them. Each line has a name and yes or no: whether this machine can run the tier.
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
