"""JAX: a recurrent net by scan."""

import jax
import jax.numpy as jnp

weights = {"w": jnp.ones((64, 64)) * 0.01, "u": jnp.ones((32, 64)) * 0.01}


def loss_of(weights, xs):
    def cell(h, x):
        h = jnp.tanh(h @ weights["w"] + x @ weights["u"])
        return h, h

    _, hs = jax.lax.scan(cell, jnp.zeros((16, 64)), xs)
    return (hs**2).mean()


@jax.jit
def update(weights, xs):
    loss, grads = jax.value_and_grad(loss_of)(weights, xs)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads), loss


xs = jnp.ones((100, 16, 32))
for step in range(100000):
    weights, loss = update(weights, xs)
