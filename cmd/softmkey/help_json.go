package main

import "github.com/spf13/cobra"

// newJSONHelp returns the topic "json" of the help, a command with a text and nothing to run.
func newJSONHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "json",
		Short: "How commands write JSON",
		Long: `With --json a command writes one JSON object per line: bad blocks, and the errors of
images and connections of a server, on standard error, and everything else on standard
output, or on standard error if the data goes to standard output.

The last line is the outcome. It has the member "command" and, if the command failed,
"error", a sentence, and "status", the exit status. "complete" is true if the command did
all its work, and false if it stopped before, at a bad block or with an error. A command
that found bad blocks has its usual outcome, with their number and the first one. "ranges"
has the first and the last number of each range of bad blocks, up to 1000 of them, and
"ranges_left_off" is the number of others. If a signal ends a command, the outcome is a
failure, except for nbd and target, which always end so.

    numbers     counts, sizes, offsets in bytes, and numbers of blocks are numbers;
                times are numbers of seconds ("seconds") or microseconds ("..._us"),
                rates are numbers per second ("gb_per_second": 10^9 bytes)
    fields      the content of a field, or a part of it, is the number in it, as a
                string of hexadecimal digits after 0x, without leading zeros, because
                many readers cannot hold a number of 64 bits. So are tags and keys.
    kind        the bad part of a field: "guard", "app_tag", "storage_tag" or "ref_tag"
    domain      "memory" or "wire"; a file that has one domain is "wire"
    file        the name of the input as it was given; with several, in each line
    null        there is no such thing, for example no bad block

From version 0.1 on no member is removed or changed; new ones may be added. The JSON of
'softmkey run --trace-format json' has a schema, docs/trace.schema.json.`,
		Example: `  softmkey verify --sig t10dif --json --max-errors 0 disk.dif 2>bad.json | jq .errors
  softmkey copy README.md copy.md --wire t10dif --json | jq .receiver.packets`,
	}
}
