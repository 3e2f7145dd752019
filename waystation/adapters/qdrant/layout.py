"""How a Qdrant server keeps a collection that is made: what its operator chooses, and finding does not depend on."""

from typing import Literal

from qdrant_client import models

from waystation.domain.value import Value


class Layout(Value):
    """None: as the server has it."""

    quantisation: Literal["none", "scalar", "product", "binary"] = "none"
    shards: int | None = None
    replicas: int | None = None
    on_disk: bool | None = None

    @property
    def quantization_config(self) -> models.QuantizationConfig | None:
        """As the client wants it. What is made smaller stays in memory; the vectors themselves correct it."""
        match self.quantisation:
            case "none":
                return None
            case "scalar":
                kind = models.ScalarType.INT8
                return models.ScalarQuantization(scalar=models.ScalarQuantizationConfig(type=kind, always_ram=True))
            case "product":
                ratio = models.CompressionRatio.X16
                return models.ProductQuantization(
                    product=models.ProductQuantizationConfig(compression=ratio, always_ram=True)
                )
            case "binary":
                return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
