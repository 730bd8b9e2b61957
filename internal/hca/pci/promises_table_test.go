package pci

import "github.com/softmkey/softmkey/internal/hca/prm"

// promises are the commands that drivers send because of a capability. Every capability that is announced stands
// here; those without commands describe a limit or a property. A test executes all of them.
var promises = map[string][]prm.Command{
	// Objects and their numbers.
	"log_max_qp":               {prm.CmdCreateQP, prm.CmdDestroyQP, prm.CmdQueryQP, prm.CmdRst2InitQP, prm.CmdInit2RTRQP, prm.CmdRTR2RTSQP, prm.CmdRTS2RTSQP, prm.CmdToErrQP, prm.CmdToRstQP, prm.CmdInit2InitQP},
	"log_max_srq":              {prm.CmdCreateRMP, prm.CmdDestroyRMP, prm.CmdModifyRMP},
	"log_max_cq":               {prm.CmdCreateCQ, prm.CmdDestroyCQ},
	"log_max_mkey":             {prm.CmdCreateMKey, prm.CmdDestroyMKey},
	"log_max_eq":               {prm.CmdCreateEQ, prm.CmdDestroyEQ, prm.CmdQueryEQ},
	"log_max_pd":               {prm.CmdAllocPD, prm.CmdDeallocPD},
	"log_max_xrcd":             {prm.CmdAllocXRCD, prm.CmdDeallocXRCD},
	"xrc":                      {prm.CmdCreateXRCSRQ, prm.CmdDestroyXRCSRQ},
	"log_max_transport_domain": {prm.CmdAllocDomain, prm.CmdDeallocDomain},
	"log_max_mcg":              {prm.CmdAttachMCG, prm.CmdDetachMCG},
	"log_max_rq":               {prm.CmdCreateRQ, prm.CmdModifyRQ, prm.CmdDestroyRQ, prm.CmdQueryRQ},
	"log_max_sq":               {prm.CmdCreateSQ, prm.CmdModifySQ, prm.CmdDestroySQ, prm.CmdQuerySQ},
	"log_max_tir":              {prm.CmdCreateTIR, prm.CmdModifyTIR, prm.CmdDestroyTIR},
	"log_max_tis":              {prm.CmdCreateTIS, prm.CmdModifyTIS, prm.CmdDestroyTIS},
	"log_max_rmp":              {prm.CmdCreateRMP},
	"log_max_rqt":              {prm.CmdCreateRQT, prm.CmdModifyRQT, prm.CmdDestroyRQT},
	"log_max_uctx":             {prm.CmdCreateUser, prm.CmdDestroyUser},
	"nic_flow_table":           {prm.CmdSetFlowRoot, prm.CmdCreateFlowTable, prm.CmdDestroyFlowTable, prm.CmdCreateFlowGroup, prm.CmdDestroyFlowGroup, prm.CmdSetFlowEntry, prm.CmdDeleteFlowEntry},
	"flow_table_modify":        {prm.CmdModifyFlowTable},
	"roce":                     {prm.CmdModifyNICVPort, prm.CmdSetRoCEAddress, prm.CmdQueryPKey},
	"eth_net_offloads":         {prm.CmdQueryVPortState, prm.CmdQueryNICVPort, prm.CmdAccessReg},
	"device_memory":            {prm.CmdAllocMEMIC, prm.CmdDeallocMEMIC},
	"memic":                    {prm.CmdAllocMEMIC, prm.CmdDeallocMEMIC},
	"uar_sz":                   {prm.CmdAllocUAR, prm.CmdDeallocUAR},
	"cq_moderation":            {prm.CmdModifyCQ},
	"cq_period_mode_modify":    {prm.CmdModifyCQ},

	// Counters.
	"vport_counters":             {prm.CmdQueryVPortCounter, prm.CmdQueryVNICEnv},
	"out_of_seq_cnt":             {prm.CmdAllocQCounter, prm.CmdDeallocQCounter, prm.CmdQueryQCounter},
	"rts2rts_qp_counters_set_id": {prm.CmdRTS2RTSQP},
	"max_qp_cnt":                 {prm.CmdAllocQCounter, prm.CmdDeallocQCounter, prm.CmdQueryQCounter},
	"retransmission_q_counters":  {prm.CmdAllocQCounter, prm.CmdDeallocQCounter, prm.CmdQueryQCounter},
	"roce_accl":                  {prm.CmdQueryQCounter},

	// Limits and properties.
	"vhca_id": nil, "log_max_srq_sz": nil, "log_max_qp_sz": nil, "max_sgl_for_optimized_performance": nil, "log_max_cq_sz": nil, "log_max_eq_sz": nil, "max_indirection": nil,
	"fixed_buffer_size": nil, "log_max_bsf_list_size": nil, "umr_extended_translation_offset": nil, "log_max_klm_list_size": nil, "log_max_ra_req_dc": nil, "log_max_ra_res_dc": nil,
	"log_max_ra_req_qp": nil, "log_max_ra_res_qp": nil, "gid_table_size": nil, "local_ca_ack_delay": nil, "port_type": nil, "num_ports": nil, "log_max_msg": nil, "max_tc": nil,
	"cqe_version": nil, "sctr_data_cqe": nil, "atomic": nil, "cq_resize": nil, "cq_eq_remap": nil, "cd": nil, "apm": nil, "umr_ptr_rlky": nil, "imaicl": nil, "ud": nil, "uc": nil, "rc": nil,
	"log_pg_sz": nil, "log_bf_reg_size": nil, "max_wqe_sz_sq": nil, "max_wqe_sz_rq": nil, "max_qp_mcg": nil, "basic_cyclic_rcv_wqe": nil, "log_max_rqt_size": nil, "log_max_tis_per_sq": nil,
	"log_max_stride_sz_rq": nil, "log_min_stride_sz_rq": nil, "log_max_stride_sz_sq": nil, "log_min_stride_sz_sq": nil, "log_max_wq_sz": nil, "log_max_vlan_list": nil,
	"log_max_current_mc_list": nil, "log_max_current_uc_list": nil, "log_max_l2_table": nil, "device_frequency_khz": nil, "num_of_uars_per_page": nil,
	"log_min_memic_alloc_size": nil, "log_max_memic_addr_alignment": nil, "memic_bar_start_addr": nil, "memic_bar_size": nil, "max_memic_size": nil,
	"csum_cap": nil, "vlan_cap": nil, "self_lb_en_modifiable": nil, "max_lso_cap": nil, "wqe_inline_mode": nil, "rss_ind_tbl_cap": nil,
	"supported_atomic_req_8B_endianness_mode_1": nil, "atomic_operations": nil, "atomic_size_qp": nil,
	"sw_r_roce_src_udp_port": nil, "l3_type": nil, "roce_version": nil, "r_roce_dest_udp_port": nil, "r_roce_max_src_udp_port": nil, "r_roce_min_src_udp_port": nil, "roce_address_table_size": nil,
	"ft_support": nil, "flow_modify_en": nil, "modify_root": nil, "identified_miss_table_mode": nil, "log_max_ft_size": nil, "max_ft_level": nil, "log_max_ft_num": nil,
	"log_max_destination": nil, "log_max_flow": nil,
	"ft_field_support.outer_dmac": nil, "ft_field_support.outer_smac": nil, "ft_field_support.outer_ether_type": nil, "ft_field_support.outer_ip_version": nil,
	"ft_field_support.outer_first_vid": nil, "ft_field_support.outer_sip": nil, "ft_field_support.outer_dip": nil, "ft_field_support.outer_ip_protocol": nil,
	"ft_field_support.outer_udp_sport": nil, "ft_field_support.outer_udp_dport": nil, "ft_field_support.outer_tcp_sport": nil, "ft_field_support.outer_tcp_dport": nil,
}

// unconditional are the commands that drivers send whatever is announced.
var unconditional = []prm.Command{prm.CmdQueryHCACap, prm.CmdQueryAdapter, prm.CmdInitHCA, prm.CmdTeardownHCA, prm.CmdEnableHCA, prm.CmdDisableHCA, prm.CmdQueryPages, prm.CmdManagePages, prm.CmdSetHCACap, prm.CmdQueryISSI, prm.CmdSetISSI, prm.CmdSetDriverVersion, prm.CmdQuerySpecial, prm.CmdNop}

// absence is a capability that stays 0, and what docs/pci.md says about it.
type absence struct {
	name  string
	group uint16
	off   int // of a bit
	doc   string
}

// absences are the capabilities that users miss first.
var absences = []absence{
	{"bf", capGeneral, 0x260, "BlueFlame (each of the eight writes of a request would be a trap"},
	{"pg", capGeneral, 0x227, "on-demand paging"},
	{"dct", capGeneral, 0x21a, "DC in a guest"},
	{"striding_rq", capGeneral, 0x201, "Striding receive queues"},
	{"vport_group_manager", capGeneral, 0x1a0, "an e-switch"},
	{"lro_cap", capEthernet, 0x2, "LRO"},
}
