from __future__ import annotations

import pytest
import torch

from models.tabular_nets import TableEncoder, TabularMLP


@pytest.mark.parametrize(("numeric", "cardinalities"), [(4, []), (4, [3, 900]), (0, [3, 5])])
def test_tables_may_be_numeric_categorical_or_both(numeric, cardinalities):
    model = TabularMLP(numeric, 2, cardinalities)
    inputs = [torch.randn(6, numeric)]
    if cardinalities:
        inputs.append(torch.stack([torch.arange(6) % codes for codes in cardinalities], 1))
    assert model(*inputs).shape == (6, 2)


def test_the_encoder_concatenates_numbers_and_embeddings():
    encoder = TableEncoder(1, [2, 3], 2)
    with torch.no_grad():
        encoder.embeddings[0].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        encoder.embeddings[1].weight.copy_(torch.tensor([[5.0, 6.0], [7.0, 8.0], [9.0, 0.0]]))
    found = encoder(torch.tensor([[0.5], [0.25]]), torch.tensor([[0, 2], [1, 0]]))
    assert found.tolist() == [[0.5, 1.0, 2.0, 9.0, 0.0], [0.25, 3.0, 4.0, 5.0, 6.0]]


def test_embeddings_grow_with_the_cardinality_up_to_16():
    encoder = TableEncoder(0, [2, 9, 1000], None)
    assert [table.embedding_dim for table in encoder.embeddings] == [1, 5, 16]


def test_every_category_has_an_embedding():
    model = TabularMLP(0, 1, [3, 4]).eval()
    codes = torch.cartesian_prod(torch.arange(3), torch.arange(4))
    outputs = model(torch.empty(12, 0), codes)
    assert outputs.unique().numel() == 12
