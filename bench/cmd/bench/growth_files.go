package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// fileSeries measure commands on input files of up to 1 TiB that are sparse: they contain no data, only
// one hole. Output that would not be sparse goes to /dev/null, because it would fill the disk. The files are
// in the folder of the runs, whose file system must allow files of 1 TiB.
func fileSeries(r *runs) []series {
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
			measure: func(gib int) []float64 { return r.onSparse(int64(gib)<<30, args) },
		}
	}
	return []series{
		command("files, protect", "protect", "--sig", "t10dif", "IN", "/dev/null"),
		command("files, verify", "verify", "--sig", "t10dif,type3", "IN"),
		command("files, strip", "strip", "--sig", "t10dif,type3", "IN", "OUT"),
	}
}

// onSparse measures one command on an input file of size bytes.
func (r *runs) onSparse(size int64, args []string) []float64 {
	r.build()
	in, out := r.path("in"), r.path("out")
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
	check(os.WriteFile(in, nil, 0o600))
	check(os.Truncate(in, size))
	c := exec.Command(r.path("softmkey"), args...)
	start := time.Now()
	program(c)
	took := time.Since(start)
	u := c.ProcessState.SysUsage().(*syscall.Rusage)
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	return []float64{took.Seconds(), float64(size) / float64(took.Nanoseconds()), cpu.Seconds(), float64(u.Maxrss) / 1024}
}
