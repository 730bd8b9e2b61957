package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/softmkey/softmkey/internal/tool/device"
)

// completeWords offers the values of a flag.
func completeWords(c *cobra.Command, name string, words ...string) {
	must(c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

// completeList offers the elements of a flag whose value is a list with commas.
func completeList(c *cobra.Command, name string, words ...string) {
	must(c.RegisterFlagCompletionFunc(name, func(_ *cobra.Command, _ []string, typed string) (list []string, _ cobra.ShellCompDirective) {
		done := typed[:strings.LastIndex(typed, ",")+1]
		for _, word := range words {
			list = append(list, done+word)
		}
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}))
}

// bindDevice adds a flag for a device of this host, and offers what can have one: interfaces, addresses and "auto".
func bindDevice(c *cobra.Command, value pflag.Value, name, usage string) {
	c.Flags().Var(value, name, usage)
	must(c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		words := []string{device.Auto}
		all, _ := net.Interfaces() // an error leaves the completions out
		for _, i := range all {
			words = append(words, i.Name)
		}
		addrs, _ := net.InterfaceAddrs()
		for _, a := range addrs {
			addr, _, _ := strings.Cut(a.String(), "/")
			words = append(words, addr)
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}))
}

// completeSocket offers sockets, and the folders on the way to them, for the operand SOCKET. then offers what follows it.
func completeSocket(then cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, operands []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(operands) > 0 {
			return then(c, operands, typed)
		}
		names, _ := filepath.Glob(typed + "*") // no name matches a bad pattern
		var words []string
		for _, name := range names {
			switch i, err := os.Stat(name); {
			case err != nil:
			case i.IsDir():
				words = append(words, name+string(filepath.Separator))
			case i.Mode()&os.ModeSocket != 0:
				words = append(words, name)
			}
		}
		directive := cobra.ShellCompDirectiveNoFileComp
		if len(words) == 1 && os.IsPathSeparator(words[0][len(words[0])-1]) {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return words, directive
	}
}

// completeFault offers the words of a fault, after SOCKET.
func completeFault(_ *cobra.Command, operands []string, _ string) ([]string, cobra.ShellCompDirective) {
	next := map[string][]string{
		"": {"port", "device", "gid", "qp", "loss", "clear"}, "port": {"down", "up"}, "device": {"fatal"}, "gid": {"change"}, "loss": {"1%", "5%"},
	}
	words := next[strings.Join(operands[1:], " ")]
	if len(operands) == 3 && operands[1] == "qp" {
		words = []string{"error"}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
