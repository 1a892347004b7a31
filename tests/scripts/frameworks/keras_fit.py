"""An image classifier in Keras 3; the backend is KERAS_BACKEND's."""

import sys

import keras
import numpy as np
from keras import layers

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
x = np.random.rand(640, 16, 16, 3).astype("float32")
y = np.random.randint(0, 10, 640)
model = keras.Sequential(
    [
        layers.Input((16, 16, 3)),
        layers.Conv2D(8, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(32, activation="relu"),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy")
stop = [keras.callbacks.EarlyStopping(patience=50)] if "--stop" in sys.argv else []
if "--save" in sys.argv:
    stop.append(keras.callbacks.ModelCheckpoint("out.keras", save_freq=25))
model.fit(x, y, batch_size=32, epochs=epochs, validation_data=(x[:64], y[:64]), verbose=0, callbacks=stop)
