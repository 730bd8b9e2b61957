package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// capability is a field of a group of capabilities: its place in bits, and its value.
type capability struct {
	name   string
	off, n int
	value  uint64
}

// Groups of capabilities.
const (
	capGeneral    = 0x0
	capEthernet   = 0x1
	capAtomic     = 0x3
	capRoCE       = 0x4
	capFlowTables = 0x7
	capDeviceMem  = 0xf
	capCrypto     = uint16(prm.CapCrypto)
)

const capSize = 4096

// atomicOrder is atomic_req_8B_endianness_mode of capAtomic: how an old value of 8 bytes is stored.
// The adapter stores it as the machine has it (orderHost). Linux announces atomics to programs after
// it has chosen that.
const (
	atomicOrder = 0x40
	orderHost   = 1
)

// capabilities are the groups with the fields that are not 0. Each bit that is set makes
// drivers use commands: do not announce anything that is not emulated. What keys can do is the
// adapter's: [prm.Caps.PutKeys].
var capabilities = map[uint16][]capability{
	capGeneral: {
		{"vhca_id", 0x30, 16, 1},
		{"log_max_srq_sz", 0x80, 8, 15},
		{"log_max_qp_sz", 0x88, 8, 15},
		{"log_max_qp", 0x9b, 5, 17},
		{"log_max_srq", 0xab, 5, 16},
		{"max_sgl_for_optimized_performance", 0xc0, 8, 8},
		{"log_max_cq_sz", 0xc8, 8, 22},
		{"log_max_cq", 0xdb, 5, 20},
		{"log_max_eq_sz", 0xe0, 8, 22},
		{"log_max_mkey", 0xea, 6, 20},
		{"log_max_eq", 0xfc, 4, 6},
		{"max_indirection", 0x100, 8, 4},
		{"fixed_buffer_size", 0x108, 1, 1},
		{"log_max_bsf_list_size", 0x112, 6, 6},
		{"umr_extended_translation_offset", 0x118, 1, 1},
		{"log_max_klm_list_size", 0x11a, 6, 16},
		{"log_max_ra_req_dc", 0x12a, 6, 6},
		{"log_max_ra_res_dc", 0x13a, 6, 6},
		{"roce_accl", 0x149, 1, 1},
		{"log_max_ra_req_qp", 0x14a, 6, 4},
		{"log_max_ra_res_qp", 0x15a, 6, 4},
		{"rts2rts_qp_counters_set_id", 0x169, 1, 1},
		{"gid_table_size", 0x170, 16, 1},
		{"out_of_seq_cnt", 0x180, 1, 1},
		{"vport_counters", 0x181, 1, 1},
		{"retransmission_q_counters", 0x182, 1, 1},
		{"max_qp_cnt", 0x186, 10, lastCounterSet}, // mlx5_ib has no hw_counters without it
		{"nic_flow_table", 0x1a6, 1, 1},
		{"device_memory", 0x1a8, 1, 1},
		{"local_ca_ack_delay", 0x1ab, 5, 16},
		{"port_type", 0x1b6, 2, 1},
		{"num_ports", 0x1b8, 8, 1},
		{"log_max_msg", 0x1c3, 5, 30},
		{"max_tc", 0x1cc, 4, 3},
		{"cqe_version", 0x1fc, 4, 1},
		{"sctr_data_cqe", 0x215, 1, 1},
		{"eth_net_offloads", 0x21c, 1, 1},
		{"roce", 0x21d, 1, 1},
		{"atomic", 0x21e, 1, 1},
		{"cq_resize", 0x221, 1, 1},
		{"cq_moderation", 0x222, 1, 1},
		{"cq_period_mode_modify", 0x223, 1, 1},
		{"cq_eq_remap", 0x226, 1, 1},
		{"cd", 0x22c, 1, 1},
		{"apm", 0x22e, 1, 1},
		{"umr_ptr_rlky", 0x230, 1, 1},
		{"imaicl", 0x231, 1, 1},
		{"xrc", 0x23c, 1, 1},
		{"ud", 0x23d, 1, 1},
		{"uc", 0x23e, 1, 1},
		{"rc", 0x23f, 1, 1},
		{"uar_sz", 0x24a, 6, 5},
		{"log_pg_sz", 0x258, 8, 12},
		{"log_bf_reg_size", 0x26b, 5, 9}, // of the registers in a page; BlueFlame itself (bf) is absent: each of its 8 writes would be a trap
		{"max_wqe_sz_sq", 0x290, 16, 1024},
		{"max_wqe_sz_rq", 0x2b0, 16, 512},
		{"max_qp_mcg", 0x2e7, 25, 240},
		{"log_max_mcg", 0x318, 8, 8},
		{"log_max_transport_domain", 0x323, 5, 16},
		{"log_max_pd", 0x32b, 5, 16},
		{"log_max_xrcd", 0x33b, 5, 16},
		{"log_max_rq", 0x363, 5, 16},
		{"log_max_sq", 0x36b, 5, 16},
		{"log_max_tir", 0x373, 5, 16},
		{"log_max_tis", 0x37b, 5, 16},
		{"basic_cyclic_rcv_wqe", 0x380, 1, 1},
		{"log_max_rmp", 0x383, 5, 16},
		{"log_max_rqt", 0x38b, 5, 16},
		{"log_max_rqt_size", 0x393, 5, 8},
		{"log_max_tis_per_sq", 0x39b, 5, 4},
		{"log_max_stride_sz_rq", 0x3a3, 5, 13},
		{"log_min_stride_sz_rq", 0x3ab, 5, 6},
		{"log_max_stride_sz_sq", 0x3b3, 5, 6},
		{"log_min_stride_sz_sq", 0x3bb, 5, 6},
		{"log_max_wq_sz", 0x3db, 5, 16},
		{"log_max_vlan_list", 0x3eb, 5, 7},
		{"log_max_current_mc_list", 0x3f3, 5, 7},
		{"log_max_current_uc_list", 0x3fb, 5, 7},
		{"log_max_l2_table", 0x483, 5, 8},
		{"log_max_uctx", 0x463, 5, 8},
		{"device_frequency_khz", 0x4e0, 32, 1000000},
		{"num_of_uars_per_page", 0x520, 32, 1},
	},
	capEthernet: {
		{"csum_cap", 0x0, 1, 1},
		{"vlan_cap", 0x1, 1, 1},
		{"self_lb_en_modifiable", 0x8, 1, 1},
		{"max_lso_cap", 0xb, 5, 16},
		{"wqe_inline_mode", 0x12, 2, 2},
		{"rss_ind_tbl_cap", 0x14, 4, 8},
	},
	capAtomic: {
		{"supported_atomic_req_8B_endianness_mode_1", 0x46, 1, 1},
		{"atomic_operations", 0x90, 16, 0xf}, // compare and swap, fetch and add; the same masked
		{"atomic_size_qp", 0xb0, 16, 4 | 8},
	},
	capRoCE: {
		{"sw_r_roce_src_udp_port", 0x4, 1, 1},
		{"l3_type", 0x8c, 4, 6},
		{"roce_version", 0x98, 8, 5},
		{"r_roce_dest_udp_port", 0xb0, 16, 4791},
		{"r_roce_max_src_udp_port", 0xc0, 16, 65535},
		{"r_roce_min_src_udp_port", 0xd0, 16, 49152},
		{"roce_address_table_size", 0xf0, 16, gidEntries},
	},
	capDeviceMem: {
		{"memic", 0x0, 1, 1},
		{"log_min_memic_alloc_size", 0x2b, 5, memicLogLeast},
		{"log_max_memic_addr_alignment", 0x38, 8, memicLogAlignment},
		{"memic_bar_start_addr", 0x40, 64, memicStart},
		{"memic_bar_size", 0x80, 32, memicSize},
		{"max_memic_size", 0xa0, 32, memicMost},
	},
	capFlowTables: {
		{"ft_support", 0x200, 1, 1},
		{"flow_modify_en", 0x203, 1, 1},
		{"modify_root", 0x204, 1, 1},
		{"identified_miss_table_mode", 0x205, 1, 1},
		{"flow_table_modify", 0x206, 1, 1},
		{"log_max_ft_size", 0x222, 6, 16},
		{"max_ft_level", 0x238, 8, 64},
		{"log_max_ft_num", 0x278, 8, 10},
		{"log_max_destination", 0x298, 8, 6},
		{"log_max_flow", 0x2b8, 8, 16},
		{"ft_field_support.outer_dmac", 0x300, 1, 1},
		{"ft_field_support.outer_smac", 0x301, 1, 1},
		{"ft_field_support.outer_ether_type", 0x302, 1, 1},
		{"ft_field_support.outer_ip_version", 0x303, 1, 1},
		{"ft_field_support.outer_first_vid", 0x306, 1, 1},
		{"ft_field_support.outer_sip", 0x30c, 1, 1},
		{"ft_field_support.outer_dip", 0x30d, 1, 1},
		{"ft_field_support.outer_ip_protocol", 0x30f, 1, 1},
		{"ft_field_support.outer_udp_sport", 0x312, 1, 1},
		{"ft_field_support.outer_udp_dport", 0x313, 1, 1},
		{"ft_field_support.outer_tcp_sport", 0x314, 1, 1},
		{"ft_field_support.outer_tcp_dport", 0x315, 1, 1},
	},
}

// group returns a group of capabilities as it is, or nil.
func (f *firmware) group(t uint16) []byte {
	if b := f.hca.caps[t]; b != nil {
		return b
	}
	return f.groupMax(t)
}

// groupMax returns a group with everything that the function can do, or nil if there is
// none.
func (f *firmware) groupMax(t uint16) []byte {
	if t == capCrypto && f.rdma.dev != nil {
		out := make([]byte, prm.CapAnswerSize)
		f.rdma.dev.Caps().Put(out, prm.CapCrypto)
		return out[prm.CommandHeaderSize:]
	}
	fields, ok := capabilities[t]
	if !ok {
		return nil
	}
	b := make([]byte, capSize)
	for _, x := range fields {
		prm.SetBits(b, x.off, x.n, x.value)
	}
	if t == capGeneral && f.rdma.dev != nil {
		f.rdma.dev.Caps().PutKeys(b)
	}
	return b
}

// queryHCACap answers the current values of a group, or the largest ones. A group that the
// function does not have is zero.
func (f *firmware) queryHCACap(c *call) error {
	t := c.Mod >> 1
	if c.Mod&1 != 0 {
		copyInto(c.Out, 0x10, f.group(t))
	} else {
		copyInto(c.Out, 0x10, f.groupMax(t))
	}
	return nil
}

// setHCACap stores the values of a group that the driver has chosen.
func (f *firmware) setHCACap(c *call) error {
	t := c.Mod >> 1
	if _, ok := capabilities[t]; !ok {
		return failure.New("SET_HCA_CAP", syscall.EINVAL, "group %#x: the function does not have it", t)
	}
	b := make([]byte, capSize)
	copy(b, c.In[0x10:])
	if t == capAtomic {
		// Linux writes the byte order alone, and expects the other fields to stay.
		order := prm.Bits(b, atomicOrder, 2)
		if order != orderHost {
			return failure.New("SET_HCA_CAP", syscall.EINVAL, "byte order %d of an atomic's old value: it is stored as the machine has it (%d)", order, orderHost)
		}
		b = f.groupMax(t)
		prm.SetBits(b, atomicOrder, 2, order)
	}
	f.hca.caps[t] = b
	return nil
}
