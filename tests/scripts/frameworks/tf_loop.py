"""TensorFlow with a loop of its own."""

import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(128, activation="relu"), tf.keras.layers.Dense(10)])
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = tf.keras.optimizers.Adam(1e-3)
data = tf.data.Dataset.from_tensor_slices((tf.random.normal((2000, 784)), tf.zeros(2000, tf.int32)))
data = data.batch(50, drop_remainder=True)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for epoch in range(500):
    for x, y in data:
        loss = train_step(x, y)
