// Command tiers prints the names of the tiers that this machine can run, one a
// line, for scripts that run tests at each of them.
package main

import (
	"fmt"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

func main() {
	for _, t := range cpu.Available() {
		fmt.Println(t)
	}
}
