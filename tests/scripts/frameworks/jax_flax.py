"""JAX with Flax and optax."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(8, (3, 3))(x))
        x = x.reshape((x.shape[0], -1))
        return nn.Dense(10)(nn.relu(nn.Dense(64)(x)))


net, key = Net(), jax.random.key(0)
params = net.init(key, jnp.ones((1, 14, 14, 1)))
tx = optax.adam(1e-3)
state = tx.init(params)


@jax.jit
def update(params, state, x, y):
    def loss_of(p):
        return optax.softmax_cross_entropy_with_integer_labels(net.apply(p, x), y).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = tx.update(grads, state)
    return optax.apply_updates(params, updates), state, loss


@jax.jit
def accuracy(params, x, y):
    return (net.apply(params, x).argmax(-1) == y).mean()


x, y = jax.random.normal(key, (32, 14, 14, 1)), jnp.zeros(32, jnp.int32)
for epoch in range(300):
    for i in range(100):
        params, state, loss = update(params, state, x, y)
    if epoch % 50 == 49:
        print(epoch, loss, sum(accuracy(params, x, y) for _ in range(20)) / 20)
