"""The shape of a model as plain data: configs, families, presets."""

from bertkit.config.bert_config import BertConfig

__all__ = ["BertConfig"]
