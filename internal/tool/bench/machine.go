package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// A Machine describes the machine that figures come from.
type Machine struct {
	CPU    string   `json:"cpu"`
	Cores  int      `json:"cores"`
	Tier   string   `json:"tier"` // instruction set of the kernels in use, such as avx512
	OS     string   `json:"os"`
	Kernel string   `json:"kernel,omitempty"`
	Go     string   `json:"go"`
	Peers  []string `json:"peers,omitempty"` // with their versions
}

// ThisMachine describes the machine that the program runs on.
func ThisMachine() Machine {
	return Machine{
		CPU:    model("/proc/cpuinfo"),
		Cores:  runtime.NumCPU(),
		Tier:   cpu.Best().String(),
		OS:     runtime.GOOS + "/" + runtime.GOARCH,
		Kernel: firstLine("/proc/sys/kernel/osrelease"),
		Go:     runtime.Version(),
	}
}

// String returns the machine in one line, as the heading of a table.
func (m Machine) String() string {
	s := fmt.Sprintf("%s, %d cores, kernels for %s, %s", m.CPU, m.Cores, m.Tier, m.OS)
	if m.Kernel != "" {
		s += " " + m.Kernel
	}
	s += ", " + m.Go
	if len(m.Peers) > 0 {
		s += "; " + strings.Join(m.Peers, ", ")
	}
	return s
}

// model returns the processor's name from /proc/cpuinfo, followed by its family, model and
// stepping if they are there, because clouds sell different processors under one name.
func model(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown processor"
	}
	field := func(name string) string {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	switch name := field("model name"); {
	case name != "" && field("cpu family") != "":
		return fmt.Sprintf("%s (family %s, model %s, stepping %s)", name, field("cpu family"), field("model"), field("stepping"))
	case name != "":
		return name
	case field("CPU implementer") != "":
		return fmt.Sprintf("implementer %s, part %s", field("CPU implementer"), field("CPU part"))
	}
	return "unknown processor"
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
