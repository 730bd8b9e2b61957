package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// sparse measures commands on input files of up to 1 TiB that are sparse: they contain no data, only
// one hole. Output that would not be sparse goes to /dev/null, because it would fill the disk.
type sparse struct {
	*runs // its directory holds the files; its file system must allow files of 1 TiB
}

func (f *sparse) series() []series {
	label := func(gib int) string {
		if gib >= 1024 {
			return fmt.Sprintf("%d TiB", gib/1024)
		}
		return fmt.Sprintf("%d GiB", gib)
	}
	command := func(name string, args ...string) series {
		return series{
			name: name, label: label, sizes: []int{1, 16, 256, 1024},
			columns: []string{"file", "s", "GB/s of the file", "processor time, s", "largest resident memory, MiB"},
			measure: func(gib int) ([]float64, error) { return f.run(int64(gib)<<30, args) },
		}
	}
	return []series{
		command("files, protect", "protect", "--sig", "t10dif", "IN", "/dev/null"),
		command("files, verify", "verify", "--sig", "t10dif,type3", "IN"),
		command("files, strip", "strip", "--sig", "t10dif,type3", "IN", "OUT"),
	}
}

// run measures one command on an input file of size bytes.
func (f *sparse) run(size int64, args []string) ([]float64, error) {
	if err := f.build(); err != nil {
		return nil, err
	}
	in, out := filepath.Join(f.dir, "in"), filepath.Join(f.dir, "out")
	defer os.Remove(in)
	defer os.Remove(out)
	args = slices.Clone(args)
	for i, a := range args {
		switch a {
		case "IN":
			args[i] = in
		case "OUT":
			args[i] = out
		}
	}
	if err := os.WriteFile(in, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(in, size); err != nil {
		return nil, err
	}
	c := exec.Command(filepath.Join(f.dir, "softmkey"), args...)
	start := time.Now()
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	took := time.Since(start)
	u := c.ProcessState.SysUsage().(*syscall.Rusage)
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return []float64{took.Seconds(), float64(size) / float64(took.Nanoseconds()), cpu.Seconds(), float64(u.Maxrss) / 1024}, nil
}
