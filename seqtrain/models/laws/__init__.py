"""The laws of the contract, by what they are about; `seqtrain.models.contract` asks them."""
