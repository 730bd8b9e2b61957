package main

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/tool/device"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

func newDevinfo() *cobra.Command {
	addr := deviceFlag{addrFlag: addrFlag{netip.MustParseAddr("127.0.0.1")}}
	var asJSON bool
	c := &cobra.Command{
		Use:     "devinfo [flags]",
		GroupID: groupDevice,
		Short:   "Show what a device can do",
		Long: `Devinfo opens a device on an address of this host, runs its known-answer tests, and
shows its limits, its port, the signatures and the crypto that its memory keys support,
and the features of its socket.

The names are those of libibverbs and libmlx5. A function that fails its test is not
used; the exit status is 2 then.`,
		Example: `  softmkey devinfo
  softmkey devinfo --device 192.0.2.1
  softmkey devinfo --json | jq .signature.types`,
		Args: operands(),
		RunE: func(c *cobra.Command, _ []string) error {
			dev, err := device.Open(addr.Addr, device.Options{Search: !c.Flags().Changed("device")})
			if err != nil {
				return err
			}
			defer dev.Close()
			info := newDeviceInfo(dev)
			if asJSON {
				encodeOutcome(c.OutOrStdout(), info, true)
			} else {
				info.print(c.OutOrStdout())
			}
			if failed := append(info.Signature.Failed, info.Crypto.Failed...); len(failed) > 0 {
				return fmt.Errorf("known-answer tests failed: %s", strings.Join(failed, ", "))
			}
			return nil
		},
	}
	bindDevice(c, &addr, "device", "address of the device")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// deviceLimits is verbs.DeviceAttr with names for JSON.
type deviceLimits struct {
	MaxQPWR        int    `json:"max_qp_wr"`
	MaxSGE         int    `json:"max_sge"`
	MaxInlineData  int    `json:"max_inline_data"`
	MaxCQE         int    `json:"max_cqe"`
	MaxMR          int    `json:"max_mr"`
	MaxMKeyEntries int    `json:"max_mkey_entries"`
	MaxRdAtomic    int    `json:"max_rd_atomic"`
	MaxMessage     uint32 `json:"max_msg_sz"`
	AtomicHCA      bool   `json:"atomic_hca"`
}

// deviceInfo is the description of a device.
type deviceInfo struct {
	Command string       `json:"command"`
	Device  string       `json:"device"`
	CPU     string       `json:"cpu_tier"`
	Limits  deviceLimits `json:"limits"`
	Port    struct {
		State     string   `json:"state"`
		LinkLayer string   `json:"link_layer"`
		MaxMTU    int      `json:"max_mtu"`
		ActiveMTU int      `json:"active_mtu"`
		GIDs      []string `json:"gids"`
		UDPPort   uint16   `json:"udp_port"`
	} `json:"port"`
	Signature struct {
		BlockSizes []int    `json:"block_sizes"`
		Types      []string `json:"types"`
		Guards     []string `json:"t10dif_guards"`
		Failed     []string `json:"failed_tests"`
	} `json:"signature"`
	Crypto struct {
		Engines       []string `json:"engines"`
		KeySizes      []int    `json:"key_bits"`
		DataUnitSizes []int    `json:"data_unit_sizes"`
		ImportMode    string   `json:"import_mode"`
		Failed        []string `json:"failed_tests"`
	} `json:"crypto"`
	Transport struct {
		GSO        bool   `json:"gso"`
		GRO        bool   `json:"gro"`
		Batch      bool   `json:"batch"`
		ECN        bool   `json:"ecn"`
		KnownID    bool   `json:"known_identification"`
		SendBuffer int    `json:"send_buffer"`
		RecvBuffer int    `json:"receive_buffer"`
		Degraded   string `json:"degraded"`
	} `json:"transport"`
}

func newDeviceInfo(dev *verbs.Device) *deviceInfo {
	i := &deviceInfo{Command: "devinfo", Device: dev.Addr().String(), CPU: cpu.Best().String(), Limits: deviceLimits(dev.Attr())}

	port := dev.PortAttr()
	i.Port.State, i.Port.LinkLayer = "down", "Ethernet (RoCEv2)"
	if port.Active {
		i.Port.State = "active"
	}
	i.Port.MaxMTU, i.Port.ActiveMTU = port.MaxMTU, port.ActiveMTU
	for _, gid := range dev.GIDTable() {
		i.Port.GIDs = append(i.Port.GIDs, gid.String())
	}
	i.Port.UDPPort = dev.UDPPort()

	s := dev.SignatureCaps()
	i.Signature.BlockSizes = s.BlockSizes
	i.Signature.Types, i.Signature.Failed = typeNames(s.Types), typeNames(s.Failed)
	for _, g := range s.Guards {
		i.Signature.Guards = append(i.Signature.Guards, map[sig.Guard]string{sig.GuardCRC: "crc", sig.GuardCSUM: "csum"}[g])
	}

	crypto := dev.CryptoCaps()
	i.Crypto.Engines, i.Crypto.Failed = []string{}, []string{}
	if crypto.AESXTS {
		i.Crypto.Engines = append(i.Crypto.Engines, "aes-xts")
	}
	if crypto.FailedTests {
		i.Crypto.Failed = append(i.Crypto.Failed, "aes-xts")
	}
	i.Crypto.KeySizes = []int{128, 256}
	i.Crypto.DataUnitSizes = crypto.DataUnitSizes
	i.Crypto.ImportMode = "plaintext"
	if crypto.ImportMode == dek.Wrapped {
		i.Crypto.ImportMode = "wrapped"
	}

	c, t := engine.PortOf(dev).Caps(), &i.Transport
	t.GSO, t.GRO, t.Batch, t.ECN, t.KnownID = c.GSO, c.GRO, c.Batch, c.ECN, c.KnownID
	t.SendBuffer, t.RecvBuffer, t.Degraded = c.SendBuffer, c.RecvBuffer, c.Degraded
	return i
}

func typeNames(types []sig.Type) []string {
	names := []string{}
	for _, t := range types {
		names = append(names, t.String())
	}
	return names
}

func (i *deviceInfo) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, v any) { fmt.Fprintf(w, "  %s\t%v\n", name, v) }
	title := func(s string) {
		w.Flush()
		fmt.Fprintln(out, s)
	}
	title("device " + i.Device)
	line("cpu tier", i.CPU)
	title("limits")
	line("max_qp_wr", i.Limits.MaxQPWR)
	line("max_sge", i.Limits.MaxSGE)
	line("max_inline_data", i.Limits.MaxInlineData)
	line("max_cqe", i.Limits.MaxCQE)
	line("max_mr", i.Limits.MaxMR)
	line("max_mkey_entries", i.Limits.MaxMKeyEntries)
	line("max_rd_atomic", i.Limits.MaxRdAtomic)
	line("max_msg_sz", i.Limits.MaxMessage)
	line("atomic_hca", yesNo(i.Limits.AtomicHCA))
	title("port 1")
	line("state", i.Port.State)
	line("link layer", i.Port.LinkLayer)
	line("max_mtu", i.Port.MaxMTU)
	line("active_mtu", i.Port.ActiveMTU)
	for n, gid := range i.Port.GIDs {
		line(fmt.Sprintf("gid[%d]", n), gid)
	}
	line("udp port", i.Port.UDPPort)
	title("block signatures")
	line("types", strings.Join(i.Signature.Types, " "))
	line("t10dif guards", strings.Join(i.Signature.Guards, " "))
	line("block sizes", numbers(i.Signature.BlockSizes))
	line("failed tests", orNone(i.Signature.Failed))
	title("crypto")
	line("engines", orNone(i.Crypto.Engines))
	line("key bits", numbers(i.Crypto.KeySizes))
	line("data unit sizes", numbers(i.Crypto.DataUnitSizes))
	line("import mode", i.Crypto.ImportMode)
	line("failed tests", orNone(i.Crypto.Failed))
	title("transport")
	line("gso", yesNo(i.Transport.GSO))
	line("gro", yesNo(i.Transport.GRO))
	line("batched calls", yesNo(i.Transport.Batch))
	line("ecn", yesNo(i.Transport.ECN))
	line("identification known", yesNo(i.Transport.KnownID))
	line("send buffer", i.Transport.SendBuffer)
	line("receive buffer", i.Transport.RecvBuffer)
	if i.Transport.Degraded != "" {
		line("degraded", i.Transport.Degraded)
	}
	w.Flush()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, " ")
}

func numbers(list []int) string { return strings.Trim(fmt.Sprint(list), "[]") }
