"""Session config entries and optimizers that ONNX Runtime 1.31 knows. Data only.

ONNX Runtime silently ignores an unknown key or name, so these lists keep a typing error from being measured
as a setting. Entries with a setting of their own are in the table of settings.
Source: the literals of the installed libraries and ONNX Runtime's verbose log.
"""

from __future__ import annotations

from collections.abc import Mapping

_FLAG = ("0", "1")
KNOWN_CONFIG_ENTRIES: Mapping[str, tuple[str, ...]] = {
    # key -> accepted values; an empty tuple: any text (numbers, paths, lists)
    "session.intra_op.spin_backoff_max": (),
    "session.inter_op.spin_backoff_max": (),
    "session.disable_prepacking": _FLAG,
    "session.prepack.enable_parallel": _FLAG,
    "session.save_external_prepacked_constant_initializers": _FLAG,
    "session.use_env_allocators": _FLAG,
    "session.use_device_allocator_for_initializers": _FLAG,
    "session.disable_cpu_ep_fallback": _FLAG,
    "session.record_ep_graph_assignment_info": _FLAG,
    "session.disable_quant_qdq": _FLAG,
    "session.disable_qdq_constant_folding": _FLAG,
    "session.disable_double_qdq_remover": _FLAG,
    "session.enable_quant_qdq_cleanup": _FLAG,
    "session.qdqisint8allowed": _FLAG,
    "session.x64quantprecision": _FLAG,
    "session.enable_dq_matmulnbits_fusion": _FLAG,
    "session.qdq_matmulnbits_accuracy_level": (),
    "session.qdq_matmulnbits_block_size": (),
    "optimization.disable_specified_optimizers": (),
    "optimization.enable_gelu_approximation": _FLAG,
    "optimization.enable_cast_chain_elimination": _FLAG,
    "optimization.constant_folding_max_output_size_in_bytes": (),
    "optimization.minimal_build_optimizations": ("", "save", "apply"),
    "session.graph_optimizations_loop_level": ("0", "1", "2"),
    "session.disable_aot_function_inlining": _FLAG,
    "session.function_expansion_node_limit": (),
    "session.function_expansion_byte_limit": (),
    "session.strict_shape_type_inference": _FLAG,
    "session.allow_released_opsets_only": _FLAG,
    "session.load_model_format": ("ONNX", "ORT"),
    "session.save_model_format": ("ONNX", "ORT"),
    "session.use_ort_model_bytes_directly": _FLAG,
    "session.use_ort_model_bytes_for_initializers": _FLAG,
    "session.use_memory_mapped_ort_model": _FLAG,
    "session.resource_cuda_partitioning_settings": (),
    "session.layer_assignment_settings": (),
    "session.name_based_layer_assignment": (),
    "session.node_partition_config_file": (),
    "session.disable_model_compile": _FLAG,
    "session.fail_on_suboptimal_compiled_model": _FLAG,
    "ep.context_enable": _FLAG,
    "ep.context_file_path": (),
    "ep.context_embed_mode": _FLAG,
    "mlas.use_lut_gemm": _FLAG,
    "mlas.disable_kleidiai": _FLAG,
    "mlas.kleidiai.conv_igemm_max_work": (),
    "mlas.enable_gemm_fastmath_arm64_bfloat16": _FLAG,
    "ep.cuda.fpa_intb_gemm": (),
    "ep.cuda.fpa_intb_profile_m": (),
    "ep.cuda.enable_gemm_auto_tune": _FLAG,
}

# The entries above that hold a whole number, with their range: ORT only logs a bad one.
_MAX_SIZE = 2**63 - 1
INTEGER_CONFIG_ENTRIES: Mapping[str, tuple[int, int]] = {
    "session.intra_op.spin_backoff_max": (1, 64),
    "session.inter_op.spin_backoff_max": (1, 64),
    "session.qdq_matmulnbits_accuracy_level": (0, 4),
    "session.qdq_matmulnbits_block_size": (-1, 256),
    "optimization.constant_folding_max_output_size_in_bytes": (0, _MAX_SIZE),
    "session.function_expansion_node_limit": (0, _MAX_SIZE),
    "session.function_expansion_byte_limit": (0, _MAX_SIZE),
    "mlas.kleidiai.conv_igemm_max_work": (0, _MAX_SIZE),
}

# Graph transformers and rewrite rules that `disabled_optimizers` can name. Source: the verbose log of ONNX
# Runtime 1.31.1 (transformers) and its library (rules of Level1_RuleBasedTransformer).
KNOWN_OPTIMIZERS = (
    *("AttentionFusion", "Avx2WeightS8ToU8Transformer", "BiasDropoutFusion", "BiasGeluFusion"),
    *("BiasSkipLayerNormFusion", "BiasSoftmaxFusion", "CastChainElimination", "CastElimination"),
    *("CastFloat16Transformer", "ClipQuantRewrite", "CommonSubexpressionElimination", "ConstantFolding"),
    *("ConstantSharing", "ConvActivationFusion", "ConvAddActivationFusion", "ConvAddFusion"),
    *("ConvBNFusion", "ConvMulFusion", "DQMatMulNBitsFusion", "DivMulFusion", "DoubleQDQPairsRemover"),
    *("DynamicQuantizeMatMulFusion", "EliminateDropout", "EliminateIdentity", "EliminateSlice"),
    *("EmbedLayerNormFusion", "EnsureUniqueDQForNodeUnit", "ExpandElimination", "FastGeluFusion"),
    *("FreeDimensionOverrideTransformer", "FuseFp16InitializerToFp32NodeTransformer", "FuseReluClip"),
    *("GatherSliceToSplitFusion", "GatherToSliceFusion", "GeluApproximation", "GeluFusionL1"),
    *("GeluFusionL2", "GemmActivationFusion", "GemmSumFusion", "GemmTransposeFusion"),
    *("GroupQueryAttentionFusion", "GroupQueryAttentionPreNormFusion", "LabelEncoderFusion"),
    *("LayerNormFusionL1", "LayerNormFusionL2", "Level1_RuleBasedTransformer"),
    *("Level2_RuleBasedTransformer", "MatMulActivationFusion", "MatMulAddFusion"),
    *("MatMulIntegerToFloatFusion", "MatMulNBitsFusion", "MatMulScaleFusion"),
    *("MatMul_BatchNormalization_Fusion", "MatmulTransposeFusion", "MemcpyTransformer"),
    *("NchwcTransformer", "NhwcTransformer", "NoopElimination", "NotWhereFusion", "Pad_Fusion"),
    *("PreShapeNodeElimination", "QDQFinalCleanupTransformer", "QDQPropagationTransformer"),
    *("QDQS8ToU8Transformer", "QDQSelectorActionTransformer", "QuickGeluFusion"),
    *("ReluQuantRewrite", "RemoveDuplicateCastTransformer", "ReshapeFusion"),
    *("SimplifiedLayerNormFusion", "SkipLayerNormFusion", "SliceConcatToSpaceToDepthFusion"),
    *("TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider", "UnsqueezeElimination"),
    *("WeightBiasQuantization", "WhereDummyDq"),
)

# Keys that ONNX Runtime stores and ignores when they are set from Python: only the attribute counts.
MIRROR_CONFIG_ENTRIES: Mapping[str, str] = {
    f"session.{name}": name
    for name in (
        "intra_op_num_threads",
        "inter_op_num_threads",
        "graph_optimization_level",
        "execution_mode",
        "enable_cpu_mem_arena",
        "enable_mem_pattern",
        "enable_profiling",
        "optimized_model_filepath",
        "use_per_session_threads",
        "use_deterministic_compute",
    )
}
