package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/softmkey/softmkey/internal/tool/bench"
	"github.com/softmkey/softmkey/internal/tool/tcpport"
)

// iperf returns the case of one TCP stream over loopback.
func iperf() *bench.Case {
	return &bench.Case{Name: "iperf3, one TCP stream", Sample: func(d time.Duration) (rate float64, err error) {
		// iperf3 sometimes fails to reach its own server without a message.
		for range 5 {
			if rate, err = iperfStream(d); err == nil {
				return rate, nil
			}
		}
		return 0, err
	}}
}

// iperfStream measures a TCP stream of iperf3 over loopback, in GB/s.
func iperfStream(d time.Duration) (float64, error) {
	port, err := tcpport.Free()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d+2*patience)
	defer cancel()
	server := exec.CommandContext(ctx, "iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port)
	if err := server.Start(); err != nil {
		return 0, err
	}
	defer func() { cancel(); _ = server.Wait() }()
	if err := tcpport.Await(ctx, port); err != nil {
		return 0, err
	}
	seconds := strconv.Itoa(max(1, int(d.Round(time.Second).Seconds())))
	out, err := exec.CommandContext(ctx, "iperf3", "-c", "127.0.0.1", "-p", port, "-t", seconds, "-J").Output()
	if err != nil {
		return 0, fmt.Errorf("iperf3: %w", err)
	}
	var report struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	switch err := json.Unmarshal(out, &report); {
	case err != nil:
		return 0, fmt.Errorf("iperf3: %w", err)
	case report.End.Received.BitsPerSecond == 0:
		return 0, fmt.Errorf("iperf3: no figure: %.200s", report.Error)
	}
	return report.End.Received.BitsPerSecond / 8e9, nil
}
