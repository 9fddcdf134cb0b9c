"""The laws of the contract, grouped by subject; `seqtrain.models.contract` checks them."""
