"""The groups of flags in the help. A flag means the same in every command, so it is in one group.

`command.flag` is a flag that means something else in that command.
"""

# Title -> flags, both in the order of the help. Of transformers' `TrainingArguments`, only everyday flags are named
# here; `--help_all` shows the others.
_FLAGS = {
    "Input and output": """
        text source data run_dir model teacher student tokenizer task tasks repo_id shell train_file validation_file
        test_file unlabelled data_dir dataset dataset_config predictions output_dir output keep_columns predictions_dir
        report_dir report export export_count overwrite
    """,
    "Which examples": "validation_split folds max_train_samples skip_empty",
    "Reading files": """
        text_column text_pair_column label_column label_columns label_separator choice_columns encoding split_sentences
        join_lines document_end heading_pattern num_processes drop
    """,
    "What is left out": "dry_run symbol_share scripts tokens_per_character near_duplicate_similarity",
    "Token store": "append num_shards shard_index shard_by",
    "Vocabulary": """
        vocab_size layout lower_case algorithm strip_accents character_coverage min_frequency held_out_fraction
    """,
    "Model": """
        new_pieces new_piece_frequency append_pieces new_rows model_size num_hidden_layers hidden_size
        num_attention_heads dropout bilstm embeddings teacher_embeddings new_head from_scratch keep_model_type
    """,
    "Smaller": "drop_layers keep_layers keep_heads",
    "Conversion": """
        head config_file vocab_file do_lower_case labels optimizer ignore int8 opset allow_other_activation verify
    """,
    "Sequences and batches": """
        max_length short_probability pack row_length window_pooling doc_stride max_document_context max_question_length
        batch_size dtype pooling
    """,
    "Pretraining objective": """
        objective mlm_probability mlm_probability_end mask_replace_prob random_replace_prob masking_unit
        max_predictions ltr_probability static_masking heldout causal_share train_embeddings_first phase2_max_length
        phase2_steps phase2_positions phase2_per_device_train_batch_size phase2_gradient_accumulation_steps
    """,
    "Tags and answers": """
        continuation_labels max_answer_length max_context n_best_size null_score_threshold top_k probabilities
    """,
    "Which parts are trained": """
        freeze freeze_layers train_head_first gradual_unfreezing reinitialize_layers lora peft_config
    """,
    "Features of frozen layers": "approach features weights lstm_size",
    "Learning from the teacher": """
        distillation_temperature hard_label_weight hidden_state_weight relation_weight relations relation_heads
    """,
    "Table": "suite only rows variants pretraining finetuning grid",
    "Picture": "view layer attention.head",
    "What the card says": """
        name summary corpus license languages base_model datasets tags limits results benchmarks texts examples
    """,
    "Upload": "private revision branch create_pr commit_message",
    "Measurement": "workloads training_sizes repeats threads sst2 sentences compiled",
    "Training": """
        pretraining_steps finetuning_epochs max_steps max_hours num_train_epochs per_device_train_batch_size
        gradient_accumulation_steps batch_ramp learning_rate layer_decay embedding_learning_rate warmup_steps
        lr_scheduler_type optim muon_learning_rate correct_bias weight_decay adam_epsilon max_grad_norm class_weights
        seed seeds bf16 activation_checkpointing torch_compile use_cpu dataloader_num_workers
    """,
    "Evaluation, checkpoints and logs": """
        eval_strategy eval_steps per_device_eval_batch_size metric_for_best_model load_best_model_at_end
        early_stopping_patience save_strategy save_steps save_total_limit logging_steps report_to run_name disable_tqdm
    """,
    "Every command": "config quiet debug help help_all",
}
GROUPS = {title: tuple(flags.split()) for title, flags in _FLAGS.items()}
