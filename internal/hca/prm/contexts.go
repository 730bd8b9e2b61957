package prm

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The contexts of objects, as in Linux's mlx5_ifc.h. A line is a field: its offset and width in bits, its use and its
// name. The uses:
//
//	read     the device reads it. Fields that the decoders of this package read need no line: [decoded] finds them
//	kernel   the device reads it, or adapters ignore it, in a command of a kernel driver; in one of a program it is 0
//	ignored  it selects something that adapters have, but that nobody can see here: a hint, a permission, or a
//	         field that has no meaning on Ethernet
//	0, 0 3   its value is one of these
//
// Bits of no line are reserved: they are 0. A command with another value is refused, so that no program waits for
// something that it has asked for and does not get.
const (
	contextCQ = `
		000/4 0 status
		004/1 0 as_notify
		005/1 0 initiator_src_dct
		007/1 0 apu_cq
		008/3 0 1 cqe_sz
		00d/1 0 scqe_break_moderation_en
		00f/2 0 1 cq_period_mode
		011/1 0 cqe_comp_en
		012/2 0 mini_cqe_res_format
		014/4 0 st
		018/1 0 always_armed_cq
		01e/2 0 cqe_compression_layout
		0a0/24 0 apu_element
		108/24 0 last_notified_index
		128/24 0 last_solicit_index
		148/24 0 consumer_counter
		168/24 0 producer_counter`

	contextQP = `
		000/4 0 state
		004/4 ignored lag_tx_port_affinity
		012/1 0 isolate_vl_tc
		013/2 0 3 pm_state
		016/2 0 req_e2e_credit_mode
		018/4 0 offload_type
		01c/2 0 end_padding_mode
		020/1 0 wq_signature
		022/1 0 atomic_like_write_en
		023/1 ignored latency_sensitive
		05b/1 kernel rlky
		05c/4 0 ulp_stateless_offload_mode
		0c1/1 ignored primary_address_path.free_ar
		0d0/16 0 primary_address_path.pkey_index
		0e8/1 ignored primary_address_path.grh
		0e9/7 ignored primary_address_path.mlid
		0f0/16 ignored primary_address_path.rlid
		114/4 ignored primary_address_path.stat_rate
		1c4/1 0 primary_address_path.f_dscp
		1c5/1 0 primary_address_path.f_ecn
		1c7/1 0 primary_address_path.f_eth_prio
		1c8/2 0 primary_address_path.ecn
		1ca/6 read primary_address_path.dscp
		1e0/1 0 primary_address_path.dei_cfi
		1e4/4 ignored primary_address_path.sl
		220/352 0 secondary_address_path
		380/4 ignored log_ack_req_freq
		394/1 kernel fre
		395/3 0 cur_rnr_retry
		398/3 0 cur_retry_count
		3e3/5 0 log_num_dci_stream_channels
		403/5 0 log_num_dci_errored_streams
		408/24 kernel deth_sqpn
		448/24 0 last_acked_psn
		468/24 0 ssn
		48c/4 ignored atomic_mode
		49d/1 0 cd_slave_receive
		49e/1 0 cd_slave_send
		49f/1 0 cd_master
		588/24 0 rmsn
		5a0/16 0 hw_sq_wqebb_counter
		5b0/16 0 sw_sq_wqebb_counter
		5c0/32 0 hw_rq_counter
		5e0/32 0 sw_rq_counter
		62f/1 0 cgs
		630/8 ignored cs_req
		638/8 ignored cs_res
		640/64 0 dc_access_key`

	contextXRCSRQ = `
		000/4 0 state
		020/1 0 wq_signature
		021/1 0 cont_srq
		023/1 0 rlky
		024/1 0 basic_cyclic_rcv_wqe
		047/1 0 dbr_umem_valid
		080/1 0 user_index_equal_xrc_srqn
		0f0/16 0 wqe_cnt`

	contextRMP = `
		008/4 0 1 state
		020/1 0 basic_cyclic_rcv_wqe` + workQueue + `
		185/2 0 wq.end_padding_mode
		184/1 0 wq.wq_signature`

	// workQueue is the part of the contexts of RMPs, RQs and SQs that they share.
	workQueue = `
		187/1 0 wq.cd_slave
		1a0/1 0 wq.hds_skip_first_sge
		1a1/3 0 wq.log2_hds_buf_size
		1e8/24 ignored wq.uar_page
		240/32 0 wq.hw_counter
		260/32 0 wq.sw_counter
		2a3/5 0 wq.log_hairpin_num_packets
		2ab/5 0 wq.log_hairpin_data_sz
		2b4/4 0 wq.log_wqe_num_of_strides
		2b8/1 0 wq.two_byte_shift_en
		2bd/3 0 wq.log_wqe_stride_size
		340/32 0 wq.headers_mkey
		360/1 0 wq.shampo_enable
		365/3 0 wq.log_reservation_size
		36d/3 0 wq.log_max_num_of_packets_per_reservation
		376/2 0 wq.log_headers_entry_size
		37c/4 0 wq.log_headers_buffer_entry_num`

	contextRQ = `
		000/1 ignored rlky
		001/1 0 delay_drop_en
		002/1 0 scatter_fcs
		003/1 ignored vsd
		004/4 read mem_rq_type
		008/4 read state
		00d/1 read flush_in_error_en
		00e/1 0 hairpin
		01a/2 0 1 ts_format
		028/24 read user_index
		048/24 read cqn
		060/8 read counter_set_id
		088/24 0 rmpn
		0a8/24 0 hairpin_peer_sq
		0d0/16 0 hairpin_peer_vhca
		126/2 0 shampo_no_match_alignment_granularity
		12e/2 0 shampo_match_criteria_type
		130/16 0 reservation_timeout` + workQueue + `
		184/1 0 wq.wq_signature
		185/2 ignored wq.end_padding_mode
		1b0/16 0 wq.lwm`

	contextSQ = `
		000/1 ignored rlky
		001/1 0 cd_master
		002/1 ignored fre
		003/1 read flush_in_error_en
		004/1 0 allow_multi_pkt_send_wqe
		005/3 ignored min_wqe_inline_mode
		008/4 read state
		00c/1 ignored reg_umr
		00d/1 0 allow_swp
		00e/1 0 hairpin
		01a/2 0 1 ts_format
		028/24 read user_index
		048/24 read cqn
		068/24 0 hairpin_peer_rq
		090/16 0 hairpin_peer_vhca
		0c8/24 0 ts_cqe_to_dest_cqn
		0f0/16 0 packet_pacing_rate_limit_index
		100/16 read tis_lst_sz
		110/16 0 qos_queue_group_id
		168/24 read tis_num_0` + workQueue + `
		184/1 0 wq.wq_signature
		185/2 0 wq.end_padding_mode
		1b0/16 0 wq.lwm`

	contextMKey = `
		00d/1 ignored relaxed_ordering_write
		00f/1 0 small_fence_on_rdma_read_response
		01a/2 0 ma_translation_mode
		020/24 0 16777215 qpn
		062/1 0 sync_umr
		065/1 ignored expected_sigerr_count
		1d9/1 ignored relaxed_ordering_read
		1e3/2 0 1 crypto_en`

	contextDCT = `
		004/4 0 state
		060/8 0 counter_set_id
		068/4 ignored atomic_mode
		06f/1 0 atomic_like_write_en
		070/1 ignored latency_sensitive
		071/1 0 rlky
		072/1 ignored free_ar
		088/8 ignored cs_res
		0e0/8 ignored tclass
		0ec/20 ignored flow_label
		150/16 0 pkey_index
		168/8 ignored my_addr_index
		178/8 ignored hop_limit
		180/32 0 dc_access_key_violation_count
		1b4/1 0 dei_cfi
		1b5/3 ignored eth_prio
		1b8/2 0 ecn
		1ba/6 ignored dscp
		1e0/32 0 ece`

	contextUmem = `
		080/1 0 ats
		09b/5 read log_page_size
		0a0/32 read page_offset
		0c0/64 read num_of_mtt`

	contextEQ = `
		000/4 0 status
		00d/1 0 ec
		00e/1 0 oi
		014/4 0 st
		054/6 read page_offset
		063/5 read log_eq_size
		068/24 ignored uar_page
		0b4/12 read intr
		0c3/5 read log_page_size
		148/24 0 consumer_counter
		168/24 0 producer_counter`

	contextTIR = `
		020/4 read disp_type
		024/1 0 tls_en
		084/16 0 lro_timeout_period_usecs
		094/4 0 packet_merge_mask
		098/8 0 lro_max_ip_payload_size
		0e8/24 read inline_rqn
		100/1 read rx_hash_symmetric
		102/1 0 tunneled_offload_en
		108/24 read indirect_table
		120/4 read rx_hash_fn
		126/1 ignored self_lb_block.multicast
		127/1 read self_lb_block.unicast
		128/24 read transport_domain
		140/320 read rx_hash_toeplitz_key
		280/2 ignored rx_hash_field_selector_outer.prot_types
		282/30 read rx_hash_field_selector_outer.selected_fields
		2a0/32 0 rx_hash_field_selector_inner`

	contextTIS = `
		000/1 ignored strict_lag_tx_port_affinity
		001/1 0 tls_en
		004/4 ignored lag_tx_port_affinity
		00c/4 ignored prio
		128/24 read transport_domain
		148/24 0 underlay_qpn
		168/24 ignored pd`

	contextRQT = `
		0a5/3 0 list_q_type
		0b0/16 read rqt_max_size
		0c0/1 0 rq_vhca_id_format
		0d0/16 read rqt_actual_size`

	contextUser = `
		000/32 0 cap`
)

// contextField is a field of a context in a command.
type contextField struct {
	name      string
	off, bits int // in the command
	use       string
	values    []uint64 // that a field which is neither read nor ignored may have
}

// Context is the context in a command.
type Context struct {
	Off, Bits int // in the command
	fields    []contextField
	free      [2][]byte // the bits that may have every value in a program's command, and in a kernel's
}

// newContext returns a context of the lines of its fields and of a command in which those bits are 1 that the device
// reads in any case.
func newContext(off, bits int, lines string, read []byte) *Context {
	c := &Context{Off: off, Bits: bits}
	for i := range c.free {
		c.free[i] = make([]byte, bits/8)
		copy(c.free[i], read[min(off/8, len(read)):])
	}
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		words := strings.Fields(line)
		at, n, _ := strings.Cut(words[0], "/")
		bit, err := strconv.ParseInt(at, 16, 32)
		width, err2 := strconv.Atoi(n)
		if err != nil || err2 != nil || int(bit)+width > bits {
			panic("prm: the table of contexts: " + line)
		}
		f := contextField{name: words[len(words)-1], off: off + int(bit), bits: width, use: words[1]}
		free, kernelFree := f.use == "read" || f.use == "ignored", f.use == "kernel"
		for _, w := range words[1 : len(words)-1] {
			v, err := strconv.ParseUint(w, 10, 64)
			if err != nil && !free && !kernelFree {
				panic("prm: the table of contexts: " + line)
			}
			f.values = append(f.values, v)
		}
		for which, free := range []bool{free, free || kernelFree} {
			var v uint64
			if free {
				v = 1
			}
			for b := range f.bits {
				SetBits(c.free[which], int(bit)+b, 1, v)
			}
		}
		c.fields = append(c.fields, f)
	}
	return c
}

// decoded returns a command in which those bits are 1 that a decoder reads.
func decoded(decode func(f fieldOf)) []byte {
	read := make([]byte, contextRoom)
	decode(func(off, n int) uint64 {
		SetBits(read, off, n, ^uint64(0))
		return 0
	})
	return read
}

// written is decoded for a decoder that has a counterpart, which writes back what was read.
func written(copy func(in, out []byte)) []byte {
	read := make([]byte, contextRoom)
	copy(bytes.Repeat([]byte{0xff}, contextRoom), read)
	return read
}

// contextRoom is the size of a command up to the end of its context, or more.
const contextRoom = 0x200

// contexts are the contexts in commands. Those of flow tables are not here.
var contexts = func() map[Command]*Context {
	queue := decoded(func(f fieldOf) { parseWorkQueue(f) })
	cq := newContext(cqcOff, 0x200, contextCQ, written(func(in, out []byte) { ParseCreateCQ(in).Put(out) }))
	qp := newContext(qpcOff, 0x740, contextQP, written(func(in, out []byte) { q := ParseQP(in); PutQP(out, &q) }))
	dct := newContext(dctOff, 0x200, contextDCT, written(func(in, out []byte) { d := ParseDCT(in); PutDCT(out, &d) }))
	mkey, srq := newContext(mkcOff, 0x200, contextMKey, decoded(func(f fieldOf) { parseMKey(f) })), newContext(xrcSRQOff, 0x200, contextXRCSRQ, decoded(func(f fieldOf) { parseXRCSRQ(f) }))
	rmp, rq, sq := newContext(0x100, 0x480, contextRMP, queue), newContext(0x100, 0x480, contextRQ, queue), newContext(0x100, 0x480, contextSQ, queue)
	tir, tis, rqt := newContext(0x100, 0x780, contextTIR, nil), newContext(0x100, 0x500, contextTIS, nil), newContext(0x100, 0x780, contextRQT, nil)
	return map[Command]*Context{
		CmdCreateCQ: cq, CmdModifyCQ: cq, CmdCreateMKey: mkey, CmdCreateQP: qp,
		CmdRst2InitQP: qp, CmdInit2InitQP: qp, CmdInit2RTRQP: qp, CmdRTR2RTSQP: qp, CmdRTS2RTSQP: qp, CmdSQErr2RTSQP: qp, CmdSQD2RTSQP: qp,
		CmdCreateXRCSRQ: srq, CmdCreateDCT: dct, CmdCreateUmem: newContext(umemOff, 0x100, contextUmem, nil),
		CmdCreateRMP: rmp, CmdModifyRMP: rmp, CmdCreateRQ: rq, CmdModifyRQ: rq, CmdCreateSQ: sq, CmdModifySQ: sq,
		CmdCreateTIR: tir, CmdModifyTIR: tir, CmdCreateTIS: tis, CmdModifyTIS: tis, CmdCreateRQT: rqt, CmdModifyRQT: rqt,
		CmdCreateEQ: newContext(0x80, 0x200, contextEQ, nil), CmdCreateUser: newContext(0x80, 0x180, contextUser, nil),
	}
}()

// Context returns the context in the command, or nil if it has none.
func (c Command) Context() *Context { return contexts[c] }

// Check returns the field of a command that has a value which the device refuses, in words, or an empty string. kernel
// says that a kernel driver sends the command for itself.
func (c *Context) Check(in []byte, kernel bool) string {
	which := 0
	if kernel {
		which = 1
	}
	first := c.Off / 8
	for i, free := range c.free[which] {
		if first+i >= len(in) {
			break
		}
		if bad := in[first+i] &^ free; bad == 0 {
			continue
		}
		for bit := 8 * i; bit < 8*i+8; bit++ {
			if free>>(7-bit&7)&1 == 0 && Bits(in, c.Off+bit, 1) != 0 {
				if why := c.refusal(in, c.Off+bit); why != "" {
					return why
				}
			}
		}
	}
	return ""
}

// refusal says why a bit of a command may not be set, or returns an empty string.
func (c *Context) refusal(in []byte, bit int) string {
	for i := range c.fields {
		f := &c.fields[i]
		if bit < f.off || bit >= f.off+f.bits {
			continue
		}
		v := Bits(in, max(f.off, bit-63), min(f.bits, 64))
		switch {
		case f.use == "kernel":
			return fmt.Sprintf("%s %#x: only a kernel driver has it", f.name, v)
		case slices.Contains(f.values, v):
			return ""
		}
		return fmt.Sprintf("%s %#x: must be %s", f.name, v, strings.Trim(strings.ReplaceAll(fmt.Sprint(f.values), " ", " or "), "[]"))
	}
	return fmt.Sprintf("bit %#x of the context is reserved: must be 0", bit-c.Off)
}
